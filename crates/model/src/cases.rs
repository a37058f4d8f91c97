//! The cases: those of the tests, those of `--deep`, and one that shows the purpose of each guard.

use crate::{Config, Guard, Left, Property, RestorerWatch, Resume};

/// One search.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    pub name: &'static str,
    pub config: Config,
}

/// No events.
const NONE: Left =
    Left { label: 0, unlabel: 0, delete: 0, kubelet: 0, copy: 0, crash: 0, lose: 0, late: 0, edit: 0 };

/// Two of each daemon that watch one Node, with one key.
const TWO: Config = Config {
    names: 1,
    storers: 2,
    restorers: 2,
    keys: 1,
    watch: true,
    restorer_watch: RestorerWatch::Complete,
    resume: Resume::List,
    left: NONE,
    without: None,
    late_final_labels: false,
};

const POLLING: Config = Config { watch: false, ..TWO };

/// One of each daemon.
const ONE: Config = Config { storers: 1, restorers: 1, ..TWO };

/// The cases of the tests. They take less than a minute.
pub const QUICK: [Case; 15] = [
    Case {
        name: "watching; a label is changed and removed, the node re-created",
        config: Config { restorers: 1, left: Left { label: 1, unlabel: 1, delete: 1, ..NONE }, ..TWO },
    },
    Case {
        name: "watching; a storer is killed and resumes from any position",
        config: Config {
            resume: Resume::Any,
            left: Left { label: 1, unlabel: 1, delete: 1, crash: 1, lose: 1, ..NONE },
            ..ONE
        },
    },
    Case {
        name: "watching; two storers, a write or its answer is lost",
        config: Config { restorers: 1, left: Left { unlabel: 1, delete: 1, lose: 1, ..NONE }, ..TWO },
    },
    Case {
        name: "watching; two keys",
        config: Config { restorers: 1, keys: 2, left: Left { label: 1, delete: 1, ..NONE }, ..TWO },
    },
    Case {
        name: "watching; two restorers, re-created twice, with a label from its kubelet",
        config: Config { storers: 1, left: Left { delete: 2, kubelet: 1, ..NONE }, ..TWO },
    },
    Case {
        name: "polling; two of each daemon",
        config: Config { left: Left { label: 1, unlabel: 1, delete: 1, kubelet: 1, ..NONE }, ..POLLING },
    },
    Case {
        name: "polling; a storer is killed, writes are lost, late or repeated",
        config: Config {
            restorers: 1,
            left: Left { unlabel: 1, delete: 1, crash: 1, lose: 1, late: 1, ..NONE },
            ..POLLING
        },
    },
    Case {
        name: "polling; two nodes, and a storer is killed",
        config: Config {
            names: 2,
            watch: false,
            left: Left { unlabel: 1, delete: 1, crash: 1, ..NONE },
            ..ONE
        },
    },
    Case {
        name: "watching; a label is removed and set again, and a write arrives late",
        config: Config { left: Left { label: 1, unlabel: 1, delete: 1, late: 1, ..NONE }, ..ONE },
    },
    Case {
        name: "watching; two keys, a label is changed and removed, the node re-created twice",
        config: Config { keys: 2, left: Left { label: 1, unlabel: 1, delete: 2, ..NONE }, ..ONE },
    },
    Case {
        name: "watching; the node is re-created four times",
        config: Config { left: Left { delete: 4, ..NONE }, ..ONE },
    },
    Case {
        name: "watching; a person edits or deletes the record, and the storer receives the deletion again",
        config: Config {
            resume: Resume::Any,
            left: Left { label: 1, unlabel: 1, delete: 1, crash: 1, edit: 1, ..NONE },
            ..ONE
        },
    },
    Case {
        name: "watching; several writes or their answers are lost",
        config: Config { left: Left { label: 1, unlabel: 1, delete: 1, lose: 3, ..NONE }, ..ONE },
    },
    Case {
        name: "watching; a storer or one of two restorers is killed, and resumes from any position",
        config: Config {
            restorers: 2,
            resume: Resume::Any,
            left: Left { label: 1, unlabel: 1, delete: 1, crash: 1, ..NONE },
            ..ONE
        },
    },
    Case {
        name: "watching; a restorer does not wait until its watch has come to the node, and a write arrives late",
        config: Config {
            restorer_watch: RestorerWatch::Late,
            left: Left { label: 1, unlabel: 1, delete: 1, late: 1, ..NONE },
            ..ONE
        },
    },
];

/// Cases that take minutes.
pub const DEEP: [Case; 14] = [
    Case {
        name: "watching; two of each daemon",
        config: Config { left: Left { label: 1, unlabel: 1, delete: 1, ..NONE }, ..TWO },
    },
    Case {
        name: "watching; one of two storers is killed, and resumes from any position",
        config: Config {
            restorers: 1,
            resume: Resume::Any,
            left: Left { unlabel: 1, delete: 1, crash: 1, ..NONE },
            ..TWO
        },
    },
    Case {
        name: "watching; two storers, writes are lost, late or repeated",
        config: Config { left: Left { unlabel: 1, delete: 1, lose: 1, late: 1, ..NONE }, ..TWO },
    },
    Case {
        name: "watching; two storers, two keys, and a kubelet that sets one",
        config: Config {
            keys: 2,
            restorers: 1,
            left: Left { label: 1, delete: 1, kubelet: 1, ..NONE },
            ..TWO
        },
    },
    Case {
        name: "watching; two storers, re-created twice",
        config: Config { restorers: 1, left: Left { unlabel: 1, delete: 2, ..NONE }, ..TWO },
    },
    Case {
        name: "watching; one of each daemon, a long history",
        config: Config { left: Left { label: 2, unlabel: 1, delete: 2, kubelet: 1, ..NONE }, ..ONE },
    },
    Case {
        name: "watching; one of each daemon, re-created twice and killed",
        config: Config {
            resume: Resume::Any,
            left: Left { unlabel: 1, delete: 2, crash: 1, lose: 1, ..NONE },
            ..ONE
        },
    },
    Case {
        name: "polling; two of each daemon, a long history",
        config: Config { left: Left { label: 2, unlabel: 1, delete: 2, copy: 1, ..NONE }, ..POLLING },
    },
    Case {
        name: "watching; two nodes",
        config: Config { names: 2, left: Left { unlabel: 1, delete: 2, ..NONE }, ..ONE },
    },
    Case {
        name: "watching; re-created twice, and a write arrives late",
        config: Config { left: Left { label: 1, unlabel: 1, delete: 2, late: 1, ..NONE }, ..ONE },
    },
    Case {
        name: "watching; re-created twice, a person edits or deletes the record, and the storer is killed",
        config: Config {
            resume: Resume::Any,
            left: Left { unlabel: 1, delete: 2, crash: 1, edit: 1, ..NONE },
            ..ONE
        },
    },
    Case {
        name: "watching; storer and restorer are killed, re-created twice",
        config: Config { resume: Resume::Any, left: Left { label: 1, delete: 2, crash: 2, ..NONE }, ..ONE },
    },
    Case {
        name: "watching; storer and restorer are killed, re-created twice, and a write is lost",
        config: Config {
            resume: Resume::Recent,
            left: Left { label: 1, unlabel: 1, delete: 2, crash: 2, lose: 1, ..NONE },
            ..ONE
        },
    },
    Case {
        name: "watching; two keys, re-created twice, writes are lost, late or repeated",
        config: Config {
            keys: 2,
            left: Left { label: 2, unlabel: 1, delete: 2, lose: 1, late: 1, ..NONE },
            ..ONE
        },
    },
];

/// The smallest search that shows the purpose of a guard, and the property that is broken without it.
pub fn shown_by(guard: Guard) -> (Config, Property) {
    let change = Left { label: 1, unlabel: 1, delete: 1, ..NONE };
    let (config, property) = match guard {
        Guard::Uid => (POLLING, Property::Unsettled),
        Guard::Marker => (POLLING, Property::Lost),
        Guard::MarkWhole => (POLLING, Property::Unsettled),
        Guard::OwnMarker => {
            let left = Left { delete: 2, copy: 1, ..NONE };
            return (Config { left, without: Some(guard), ..POLLING }, Property::Lost);
        }
        Guard::RecordUid => {
            let left = Left { label: 1, unlabel: 1, delete: 2, ..NONE };
            let config =
                Config { left, keys: 2, restorer_watch: RestorerWatch::Off, without: Some(guard), ..ONE };
            return (config, Property::Lost);
        }
        Guard::InDoubt | Guard::Unsettled => {
            let left = Left { label: 1, unlabel: 1, delete: 1, late: 1, ..NONE };
            return (Config { left, without: Some(guard), ..ONE }, Property::Unheard);
        }
        Guard::DepartedVersion => {
            let left = Left { delete: 1, crash: 1, edit: 1, ..NONE };
            let config = Config { left, resume: Resume::Any, without: Some(guard), ..ONE };
            return (config, Property::Lost);
        }
        Guard::Settled => {
            let left = Left { delete: 1, crash: 1, edit: 1, ..NONE };
            let config = Config { left, resume: Resume::Any, without: Some(guard), ..ONE };
            return (config, Property::CameBack);
        }
        Guard::Anticipation => {
            let left = Left { label: 1, delete: 1, ..NONE };
            return (Config { left, without: Some(guard), ..ONE }, Property::Outdated);
        }
        Guard::Superseded => {
            let left = Left { unlabel: 1, label: 1, delete: 2, ..NONE };
            return (Config { left, without: Some(guard), ..ONE }, Property::Outdated);
        }
        Guard::Edited => {
            let left = Left { label: 1, unlabel: 1, delete: 1, crash: 1, edit: 1, ..NONE };
            let config = Config { left, resume: Resume::Any, without: Some(guard), ..ONE };
            return (config, Property::Lost);
        }
        Guard::ConfirmingGet => (POLLING, Property::CameBack),
        Guard::FreshRecord => (POLLING, Property::CameBack),
        Guard::Tombstone | Guard::PlanLifetime => (POLLING, Property::WentBack),
        Guard::RecordVersion | Guard::CreateOnly => (POLLING, Property::WentBack),
        Guard::NodeVersion => (POLLING, Property::Overwritten),
        Guard::NewerDeleted => {
            return (
                Config { left: Left { delete: 2, ..NONE }, without: Some(guard), ..TWO },
                Property::Lost,
            );
        }
        Guard::History => {
            let left = Left { unlabel: 1, delete: 1, ..NONE };
            return (
                Config { left, late_final_labels: true, without: Some(guard), ..TWO },
                Property::WentBack,
            );
        }
        Guard::KeepNone => {
            let left = Left { unlabel: 1, delete: 1, crash: 1, ..NONE };
            let config = Config { left, resume: Resume::Recent, without: Some(guard), ..TWO };
            return (config, Property::Unheard);
        }
        Guard::LabelsGeneration => {
            let left = Left { label: 1, delete: 1, ..NONE };
            return (Config { left, keys: 2, without: Some(guard), ..POLLING }, Property::Lost);
        }
    };
    (Config { left: change, without: Some(guard), ..config }, property)
}
