//! The scenario tests are in `scenarios/`; this library is empty.
