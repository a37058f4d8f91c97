//! Reading any bytes as a list never panics, and the result does not depend on the chunks in which they arrive. Any bytes as an item of a
//! list keep no other item away.

#![no_main]

use std::io::{BufRead, BufReader};

use label_storage_wire::fixtures::{self, Head};
use label_storage_wire::{Asked, Content, Listed, Object, Undecodable, read_list};
use libfuzzer_sys::fuzz_target;

type Item = Result<Object, Undecodable>;

fn read(content: Content, input: impl BufRead) -> (Option<Listed>, Vec<Item>) {
    let asked = Asked { content, annotations: &|_| true };
    let mut objects = Vec::new();
    let listed = read_list(&asked, input, |object| objects.push(object));
    (listed.ok(), objects)
}

fuzz_target!(|bytes: &[u8]| {
    for content in [Content::Metadata, Content::ConfigMap, Content::Node] {
        let (listed, objects) = read(content, bytes);
        assert!(listed.as_ref().is_none_or(|listed| listed.items == objects.len()));
        assert_eq!(read(content, BufReader::with_capacity(3, bytes)), (listed.clone(), objects));
        // A truncated list is an error.
        if let (Some(_), Some((_, cut))) = (&listed, bytes.split_last()) {
            assert!(read(content, cut).0.is_none());
        }
    }
    let named = |name: &str| Object { name: name.to_owned(), ..Object::default() };
    let item = |name| fixtures::item(&named(name).into());
    let head = Head { kind: "ConfigMapList", ..fixtures::head() };
    let list = fixtures::list_of_items(&head, vec![item("a"), bytes.to_vec(), item("b")]);
    let (listed, items) = read(Content::ConfigMap, &list[..]);
    assert!(listed.is_some_and(|listed| listed.items == 3));
    assert_eq!([&items[0], &items[2]], [&Ok(named("a")), &Ok(named("b"))]);
});
