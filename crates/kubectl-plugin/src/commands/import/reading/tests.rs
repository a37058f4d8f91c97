use super::*;

fn read_text(text: &str) -> Reading {
    read(&pieces::spool(text.as_bytes()).expect("a file"), &IdentityBy::Name).expect("a file")
}

fn problems(text: &str) -> Vec<(u64, String)> {
    match read_text(text) {
        Reading::Whole(_) => Vec::new(),
        Reading::Wrong { problems, .. } => {
            problems.into_iter().map(|problem| (problem.line, problem.what)).collect()
        }
    }
}

#[test]
fn a_whole_file_is_read_and_found_again() {
    let text = "# head\n---\nnode: a\nlabels: {a: b}\n---\nnode: b\nidentity: label:x=y\nlabels: {a: c}\n---\n# the end\nend: true\n";
    for (by, looked_for) in [("name", [true, false]), ("label:x", [false, true])] {
        let file = pieces::spool(text.as_bytes()).expect("a file");
        let by = by.parse().expect("an identity");
        let Reading::Whole(documents) = read(&file, &by).expect("a file") else {
            panic!("{:?}", problems(text))
        };
        let short: Vec<_> = documents.all.iter().map(|one| (one.place.line, one.is_looked_for)).collect();
        assert_eq!(short, [(3, looked_for[0]), (6, looked_for[1])]);
        for (name, at) in [("a", 0), ("b", 1)] {
            let one = &documents.all[at];
            let (record, _) = record_at(&file, one.place).expect("a record");
            assert_eq!((record.node.as_str(), fingerprint(&record)), (name, one.fingerprint));
            assert_eq!(documents.names.get(record_name(record.filed_under()).as_str()), Some(&(at as u32)));
        }
    }
}

#[test]
fn a_file_that_was_cut_off_is_noticed_at_every_byte() {
    let text = "---\nnode: a\nlabels:\n  a: b\n---\nnode: b\nlabels:\n  a: c\n---\nend: true\n";
    // The last line may lack its end.
    for length in 0..text.len() - 1 {
        assert_ne!(problems(&text[..length]), [], "{length}");
    }
    assert_eq!(problems(text), []);
}

#[test]
fn what_is_wrong_is_told_with_its_line_in_the_file() {
    let found = problems(
        "---\nnode: a\nlabels: {a: b}\n---\n\nnode: a\nlabels: {c: d}\n---\nnode: b\n---\nnode: c\nlables: {}\n---\nend: true\n---\nnode: d\nlabels: {a: b}\n",
    );
    let lines: Vec<_> = found.iter().map(|(line, _)| *line).collect();
    assert_eq!(lines, [5, 9, 12, 16], "{found:?}");
    for (at, part) in ["stands on line 2 already", "nothing would come back", "\"lables\"", "after the end"]
        .iter()
        .enumerate()
    {
        assert!(found[at].1.contains(part), "{found:?}");
    }
}

#[test]
fn no_more_is_told_than_anyone_reads() {
    let text = "---\nnode: A\n".repeat(100);
    let Reading::Wrong { problems, more } = read_text(&text) else { panic!("it is wrong") };
    assert_eq!((problems.len(), more), (TOLD, 101 - TOLD));
}

#[test]
fn the_example_of_the_documentation_can_be_imported() {
    let page = include_str!("../../../../../../docs/export.md");
    let (_, rest) = page.split_once("```yaml\n").expect("an example");
    let (example, _) = rest.split_once("```").expect("its end");
    assert_eq!(problems(example), []);
}
