//! Chooses the fault of each request.

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};

use crate::fault::Fault;
use crate::request::Request;

/// Chooses the fault of each request, in the order in which they arrive.
pub trait Script: Send + 'static {
    /// The fault of this request.
    fn fault(&mut self, request: &Request) -> Fault;
}

impl<F: FnMut(&Request) -> Fault + Send + 'static> Script for F {
    fn fault(&mut self, request: &Request) -> Fault {
        self(request)
    }
}

/// Draws faults at random. The same seed gives the same faults for the same sequence of requests.
#[derive(Debug)]
pub struct Seeded {
    random: StdRng,
    rate: f64,
    resources: Vec<String>,
    excluded: fn(&Request, Fault) -> bool,
}

impl Seeded {
    /// This share of the requests for Nodes and ConfigMaps gets a fault, drawn from all that fit.
    pub fn new(seed: u64, rate: f64) -> Self {
        Self {
            random: StdRng::seed_from_u64(seed),
            rate: rate.clamp(0.0, 1.0),
            resources: vec!["nodes".to_owned(), "configmaps".to_owned()],
            excluded: |_, _| false,
        }
    }

    /// Applies to the requests for these resources instead. An empty name stands for paths without a resource, such as `/version`.
    pub fn resources<const N: usize>(self, resources: [&str; N]) -> Self {
        Self { resources: resources.map(str::to_owned).into(), ..self }
    }

    /// Leaves out the faults for which this returns true.
    pub fn excluding(self, excluded: fn(&Request, Fault) -> bool) -> Self {
        Self { excluded, ..self }
    }
}

impl Script for Seeded {
    fn fault(&mut self, request: &Request) -> Fault {
        // Drawn for every request, so that additional requests for other resources only change the order.
        let is_hit = self.random.random_bool(self.rate);
        if !is_hit || !self.resources.contains(&request.resource) {
            return Fault::None;
        }
        let mut faults = Fault::usual(request.verb);
        faults.retain(|fault| !(self.excluded)(request, *fault));
        faults.choose(&mut self.random).copied().unwrap_or(Fault::None)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use http::Method;

    use super::*;
    use crate::fault::Class;
    use crate::request::Verb;

    fn requests() -> impl Iterator<Item = Request> {
        let nodes = ["/api/v1/nodes", "/api/v1/nodes?watch=true", "/api/v1/nodes/a"];
        let gets = nodes.map(|uri| (Method::GET, uri));
        let all = gets.into_iter().chain([
            (Method::PATCH, "/api/v1/nodes/a"),
            (Method::PUT, "/apis/coordination.k8s.io/v1/namespaces/ns/leases/l"),
        ]);
        let all: Vec<_> =
            all.map(|(method, uri)| Request::new(&method, &uri.parse().expect("a path"), b"")).collect();
        std::iter::repeat_n(all, 400).flatten()
    }

    fn play(mut script: Seeded) -> Vec<(Request, Fault)> {
        requests()
            .map(|request| {
                let fault = script.fault(&request);
                (request, fault)
            })
            .collect()
    }

    #[test]
    fn a_seed_says_all() {
        assert_eq!(play(Seeded::new(7, 0.3)), play(Seeded::new(7, 0.3)));
        assert_ne!(play(Seeded::new(7, 0.3)), play(Seeded::new(8, 0.3)));
        assert!(play(Seeded::new(7, 0.0)).iter().all(|(_, fault)| *fault == Fault::None));
    }

    #[test]
    fn all_faults_happen_where_they_can_and_only_to_what_is_named() {
        let played = play(Seeded::new(7, 0.5));
        let faulted = |resource: &str| {
            let all = played.iter().filter(|(request, _)| request.resource == resource);
            all.filter_map(|(request, fault)| Some((request.verb, fault.class()?))).collect::<BTreeSet<_>>()
        };
        let nodes = faulted("nodes");
        for verb in [Verb::List, Verb::Watch, Verb::Get, Verb::Patch] {
            for class in Fault::usual(verb).into_iter().filter_map(Fault::class) {
                assert!(nodes.contains(&(verb, class)), "{verb:?} {class}");
            }
        }
        assert!(!nodes.contains(&(Verb::Patch, Class::EmptyList)));
        assert_eq!(faulted("leases"), BTreeSet::new());
        let without = play(Seeded::new(7, 0.5).excluding(|_, fault| fault == Fault::BlackHole));
        assert!(without.iter().all(|(_, fault)| *fault != Fault::BlackHole));
    }
}
