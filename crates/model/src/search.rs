//! The search: breadth first, so that the first counterexample is a shortest one.
//!
//! It does not use stateright: a world is a plain value of a few hundred bytes, and the parts that make the search feasible
//! (one number for each world that was seen, symmetric worlds taken for one, and a trace with the names that it began with)
//! are less code here.

use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};
use std::time::{Duration, Instant};

use crate::model::{Config, Model, Next, Step};
use crate::promise::Property;
use crate::world::{KEYS, Labels, Marker, Name, Node, Record, World};

/// The result of a search.
#[derive(Debug)]
pub struct Report {
    /// The number of different worlds.
    pub states: usize,
    /// The number of steps between them.
    pub steps: usize,
    /// The most steps from the first world.
    pub depth: usize,
    pub took: Duration,
    /// True if all worlds were seen that the bounds allow, and no property is broken.
    pub is_complete: bool,
    pub counterexample: Option<Counterexample>,
}

/// A shortest trace to a broken property.
#[derive(Debug)]
pub struct Counterexample {
    pub property: Property,
    /// All steps but the last, each with the world that it leads to.
    pub trace: Vec<(Step, World)>,
    /// The step that breaks the property.
    pub last: Option<Step>,
}

/// Searches all worlds that can be reached, `most` of them at most.
pub fn search(config: Config, most: usize) -> Report {
    let began = Instant::now();
    let mut model = Model::new(config);
    let (first, fingerprint) = model.canonical(&model.start());
    let mut seen: HashSet<u64, BuildHasherDefault<Itself>> = HashSet::from_iter([fingerprint]);
    // Each world: its fingerprint, and the index of the world before it.
    let mut found: Vec<(u64, u32)> = vec![(fingerprint, 0)];
    let mut open = VecDeque::from([(0, 0, first)]);
    let (mut steps, mut deepest, mut is_complete, mut counterexample) = (0, 0, true, None);
    let mut next: Vec<Next> = Vec::new();
    'search: while let Some((index, depth, world)) = open.pop_front() {
        deepest = depth;
        next.clear();
        model.next(&world, &mut next);
        steps += next.len();
        for (_, result) in &next {
            let (world, fingerprint) = match result {
                Ok(world) => model.canonical(world),
                Err(property) => {
                    counterexample = Some(retrace(&mut model, &found, index, *property));
                    break 'search;
                }
            };
            if seen.insert(fingerprint) {
                // Four billion worlds do not fit into memory.
                let number = u32::try_from(found.len()).unwrap_or(u32::MAX);
                if found.len() >= most.min(u32::MAX as usize) {
                    is_complete = false;
                    break 'search;
                }
                open.push_back((number, depth + 1, world));
                found.push((fingerprint, index));
            }
        }
    }
    is_complete &= counterexample.is_none();
    Report { states: found.len(), steps, depth: deepest, took: began.elapsed(), is_complete, counterexample }
}

/// Repeats the steps to a world, with the names that they began with.
fn retrace(model: &mut Model, found: &[(u64, u32)], to: u32, property: Property) -> Counterexample {
    let (mut way, mut index) = (Vec::new(), to as usize);
    while index > 0 {
        way.push(found[index].0);
        index = found[index].1 as usize;
    }
    let (mut world, mut trace, mut next) = (model.start(), Vec::new(), Vec::new());
    for fingerprint in way.into_iter().rev() {
        next.clear();
        model.next(&world, &mut next);
        let leads_there = |result: &Result<World, Property>| {
            result.is_ok_and(|world| model.canonical(&world).1 == fingerprint)
        };
        if let Some((step, Ok(reached))) = next.iter().find(|(_, result)| leads_there(result)) {
            trace.push((*step, *reached));
            world = *reached;
        }
    }
    next.clear();
    model.next(&world, &mut next);
    let last = next.iter().find(|(_, result)| *result == Err(property)).map(|(step, _)| *step);
    Counterexample { property, trace, last }
}

/// The hash of a fingerprint is the fingerprint itself: it is a hash already.
#[derive(Debug, Default)]
struct Itself(u64);

impl Hasher for Itself {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |number, byte| number << 8 | u64::from(*byte));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}

impl fmt::Display for Counterexample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "broken: {}", self.property)?;
        for (number, (step, world)) in self.trace.iter().enumerate() {
            let name = &world.names[step.name];
            let what = format!("n{} {step}", step.name);
            writeln!(f, "{:>3}. {what:<72} {}", number + 1, Short(name))?;
        }
        let Some(last) = self.last else { return Ok(()) };
        write!(f, "{:>3}. n{} {last}   <-- broken here", self.trace.len() + 1, last.name)
    }
}

/// Shows Node and record in one line.
struct Short<'a>(&'a Name);

impl fmt::Display for Short<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.node {
            None => write!(f, "node -")?,
            Some(Node { uid, version, labels, marker }) => {
                write!(f, "node u{uid}@{version} {}", show(labels))?;
                if let Some(Marker { uid, object, generation }) = marker {
                    write!(f, " marked u{uid}/{generation}@{object}")?;
                }
            }
        }
        match self.0.record {
            None => write!(f, "   record -"),
            Some(Record { object, uid, version, generation, labels_generation, departed, labels }) => {
                let departed = if departed { " departed" } else { "" };
                write!(
                    f,
                    "   record {object} of u{uid}@{version} {} gen {generation}/{labels_generation}{departed}",
                    show(labels)
                )
            }
        }
    }
}

fn show(labels: Labels) -> String {
    let set = (0..KEYS).filter(|key| labels[*key] > 0);
    let set: Vec<_> = set.map(|key| format!("{}={}", ["a", "b"][key], labels[key])).collect();
    format!("{{{}}}", set.join(","))
}
