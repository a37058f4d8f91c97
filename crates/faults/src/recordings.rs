//! Earlier answers, which a server that lags would still send.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING};
use http::request::Parts;
use http::{HeaderMap, StatusCode};

use crate::request::Verb;

/// The number of latest answers to one request that are kept.
const MOST: usize = 8;

/// The least time between two lists that are kept, because lists may be large.
const APART: Duration = Duration::from_secs(1);

/// An earlier answer.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// The parts of a request that must be equal: the URL and the format.
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

/// The latest answers to each request.
#[derive(Debug, Default)]
pub(crate) struct Recordings(HashMap<Question, VecDeque<(Instant, Answer)>>);

impl Recordings {
    /// True if an answer to this request should be kept now.
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

    /// The oldest answer that is kept.
    pub(crate) fn oldest(&self, question: &Question) -> Option<Answer> {
        self.0.get(question)?.front().map(|(_, answer)| answer.clone())
    }
}
