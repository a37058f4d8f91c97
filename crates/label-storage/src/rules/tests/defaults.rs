//! The defaults.

use super::*;

#[test]
fn a_record_is_kept_for_thirty_days_and_a_startup_taint_for_two_minutes() {
    let silent = Rules::default();
    assert_eq!(units::DisplayDuration(silent.retention).to_string(), "30d");
    assert_eq!(silent.startup_taint, None);
    let enabled = Rules::from_yaml("startupTaint: {enabled: true}").expect("rules");
    assert_eq!(enabled.startup_taint, Some(Duration::from_secs(120)));
}
