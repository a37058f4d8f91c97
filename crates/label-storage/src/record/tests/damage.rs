//! Damage, in words for a person.

use super::*;

#[test]
fn damage_says_what_is_wrong_and_where() {
    for (damage, words) in [
        (Damage::Annotation(GENERATION), "annotation label-storage/generation is missing or unusable"),
        (Damage::Key("a/b".to_owned()), "data key \"a/b\" is not a label key"),
        (
            Damage::Value("pool\n".to_owned(), "a b".to_owned()),
            "data key \"pool\\n\" can't have the value \"a b\"",
        ),
        (Damage::Binary("blob".to_owned()), "binaryData \"blob\" is not a label"),
    ] {
        assert_eq!(damage.to_string(), words);
    }
}
