//! The nearest allowed word to a mistyped one.

/// The candidate that was probably meant by `word`, or `None` if none is similar.
///
/// Similar means at most one edit for each three characters of the word, and at least one; an edit
/// inserts, deletes or replaces a character or swaps two adjacent ones (restricted
/// Damerau-Levenshtein). Case, `-` and `_` do not count. Of several equally similar candidates the
/// first is returned.
#[must_use]
pub fn did_you_mean<'a, S: AsRef<str>>(word: &str, candidates: &'a [S]) -> Option<&'a str> {
    let word = normalised(word);
    let edits_max = (word.len() / 3).max(1);
    let distances = candidates.iter().map(|candidate| {
        let candidate = candidate.as_ref();
        (distance(&word, &normalised(candidate)), candidate)
    });
    let nearest = distances.min_by_key(|&(edits, _)| edits)?;
    (nearest.0 <= edits_max).then_some(nearest.1)
}

/// The help for an unknown word: the most similar allowed one, if any, and all allowed ones.
#[must_use]
pub fn did_you_mean_help<S: AsRef<str>>(word: &str, candidates: &[S]) -> String {
    help(word, candidates, "allowed here")
}

/// The help for an unknown name, such as that of a profile: the most similar known one, if any, and
/// all known ones.
#[must_use]
pub fn unknown_name_help<S: AsRef<str>>(name: &str, known: &[S]) -> String {
    help(name, known, "known")
}

fn help<S: AsRef<str>>(word: &str, candidates: &[S], label: &str) -> String {
    let all: Vec<&str> = candidates.iter().map(AsRef::as_ref).collect();
    let all = all.join(", ");
    match did_you_mean(word, candidates) {
        Some(nearest) => format!("did you mean \"{nearest}\"? {label}: {all}"),
        None => format!("{label}: {all}"),
    }
}

fn normalised(word: &str) -> Vec<char> {
    word.chars().filter(|letter| !matches!(letter, '-' | '_')).map(|letter| letter.to_ascii_lowercase()).collect()
}

fn distance(left: &[char], right: &[char]) -> usize {
    let mut two_above = vec![0; right.len() + 1];
    let mut above: Vec<usize> = (0..=right.len()).collect();
    for (i, &l) in left.iter().enumerate() {
        let mut row = vec![i + 1; right.len() + 1];
        for (j, &r) in right.iter().enumerate() {
            let mut edits = (above[j] + usize::from(l != r)).min(above[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && l == right[j - 1] && left[i - 1] == r {
                edits = edits.min(two_above[j - 1] + 1);
            }
            row[j + 1] = edits;
        }
        two_above = std::mem::replace(&mut above, row);
    }
    above[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: [&str; 5] = ["queue_depth", "block_size", "zones", "rate", "ramp"];

    #[test]
    fn a_mistyped_word_is_matched_to_the_nearest_candidate() {
        for (word, meant) in [
            ("quedepth", "queue_depth"),
            ("queue-depth", "queue_depth"),
            ("Blocksize", "block_size"),
            ("zone", "zones"),
            ("rtae", "rate"),
        ] {
            assert_eq!(did_you_mean(word, &KEYS), Some(meant), "{word}");
        }
    }

    #[test]
    fn a_word_unlike_all_candidates_is_not_matched() {
        assert_eq!(did_you_mean("verify", &KEYS), None);
        assert_eq!(did_you_mean::<&str>("zones", &[]), None);
    }

    #[test]
    fn distance_counts_edits() {
        let edits = |left, right| distance(&normalised(left), &normalised(right));
        assert_eq!(edits("", "abc"), 3);
        assert_eq!(edits("kitten", "sitting"), 3);
        assert_eq!(edits("ab", "ba"), 1);
        assert_eq!(edits("same", "same"), 0);
    }
}
