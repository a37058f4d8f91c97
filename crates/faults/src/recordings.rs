//! What was answered some time ago: what a server that lags would still answer.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING};
use http::request::Parts;
use http::{HeaderMap, StatusCode};

use crate::request::Verb;

/// So many answers to one request are kept, the latest ones.
const MOST: usize = 8;

/// Answers to a list may be large: one is kept only so long after the one before.
const APART: Duration = Duration::from_secs(1);

/// An answer, as it was given.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// What must be the same for an answer to be the right one: what is asked for, and in which format.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Question {
    uri: String,
    format: [Vec<u8>; 2],
}

impl Question {
    pub(crate) fn new(request: &Parts) -> Self {
        let format = [ACCEPT, ACCEPT_ENCODING].map(|header| {
            request.headers.get(header).map(|value| value.as_bytes().to_vec()).unwrap_or_default()
        });
        Self { uri: request.uri.to_string(), format }
    }
}

/// The latest answers to each question.
#[derive(Debug, Default)]
pub(crate) struct Recordings(HashMap<Question, VecDeque<(Instant, Answer)>>);

impl Recordings {
    /// Whether an answer to this is worth keeping now.
    pub(crate) fn wants(&self, question: &Question, verb: Verb) -> bool {
        let last = self.0.get(question).and_then(|answers| answers.back());
        match verb {
            Verb::Get => true,
            Verb::List => last.is_none_or(|(at, _)| at.elapsed() >= APART),
            _ => false,
        }
    }

    pub(crate) fn keep(&mut self, question: Question, answer: Answer) {
        let answers = self.0.entry(question).or_default();
        answers.push_back((Instant::now(), answer));
        if answers.len() > MOST {
            answers.pop_front();
        }
    }

    /// The oldest answer there is.
    pub(crate) fn oldest(&self, question: &Question) -> Option<Answer> {
        self.0.get(question)?.front().map(|(_, answer)| answer.clone())
    }
}
