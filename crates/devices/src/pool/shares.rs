//! Explains why the active zones of a drive do not suffice for a new namespace, and what would fit.
//!
//! Each namespace has a part of the essential zones by its weight, rounded down, and needs one for
//! each of its own active zones. The pool decides; this only finds out for which namespace its
//! decision is so.

use zonda_elastic::limits::WEIGHT_MAX;
use zonda_elastic::portion;

use super::manage::NewNamespace;
use super::report::PoolReport;
use crate::DriveError;

/// What a namespace asks of the drive.
struct Need<'n> {
    name: &'n str,
    weight: u32,
    active: u32,
}

/// Why this namespace does not fit beside those of a pool, and the remedy; `None` if the active
/// zones suffice.
pub(super) fn shortage(report: &PoolReport, new: &NewNamespace) -> Option<DriveError> {
    let (essential, active, weight) = (report.essential_zones, new.max_active_zones, new.weight);
    let others: Vec<Need<'_>> = report
        .namespaces
        .iter()
        .map(|own| Need { name: &own.name, weight: own.weight, active: own.max_active_zones })
        .collect();
    let other_weights: u64 = others.iter().map(|other| u64::from(other.weight)).sum();
    let part = |of: u32, weight: u32| portion(essential, of, other_weights + u64::from(weight));
    // A greater weight of the new one makes the parts of all others smaller.
    let short_of = |weight: u32| others.iter().find(|other| part(other.weight, weight) < other.active);
    let own = part(weight, weight);
    let why = match short_of(weight) {
        _ if own < active => format!(
            "with weight {weight} its part is {own} of the {essential} essential active zones of the drive, and --active {active} \
             needs {active}"
        ),
        Some(Need { name, active, .. }) => format!(
            "with weight {weight} it would leave \"{name}\" {} of the {essential} essential active zones of the drive, of which \
             that one needs {active}",
            part(others.iter().find(|other| other.name == *name)?.weight, weight)
        ),
        None => return None,
    };
    let heaviest = (1..=WEIGHT_MAX).rev().find(|weight| short_of(*weight).is_none());
    let fits = heaviest.and_then(|heaviest| (1..=heaviest).find(|weight| part(*weight, *weight) >= active));
    // Parts are rounded down, so that a smaller weight may be enough for the same part.
    let help = match (fits, heaviest.map(|heaviest| (heaviest, part(heaviest, heaviest)))) {
        (Some(fits), _) => format!("use --weight {fits}"),
        (None, Some((heaviest, most))) if most > 0 => {
            let least = (1..=heaviest).find(|weight| part(*weight, *weight) >= most).unwrap_or(heaviest);
            format!("use --weight {least} --active {most}, the most that fit beside the others")
        }
        _ => "delete a namespace first: the weights and active zones of existing ones cannot be changed".to_owned(),
    };
    Some(DriveError::new(format!("cannot create the namespace \"{}\": {why}", new.name), help))
}

#[cfg(test)]
mod tests {
    use super::super::manage::NamespaceSize;
    use super::super::report::PoolNamespaceReport;
    use super::*;

    fn pool(namespaces: &[(&str, u32, u32)]) -> PoolReport {
        let namespaces = namespaces.iter().map(|(name, weight, active)| PoolNamespaceReport {
            name: (*name).to_owned(),
            weight: *weight,
            max_active_zones: *active,
            ..PoolNamespaceReport::default()
        });
        PoolReport { essential_zones: 16, namespaces: namespaces.collect(), ..PoolReport::default() }
    }

    fn text(namespaces: &[(&str, u32, u32)], weight: u32, active: u32) -> Option<(String, String)> {
        let size = NamespaceSize::Zones(1);
        let new = NewNamespace { name: "new".to_owned(), size, max_active_zones: active, weight };
        shortage(&pool(namespaces), &new).map(|error| {
            let why = error.message.strip_prefix("cannot create the namespace \"new\": ").expect("it names it");
            (why.to_owned(), error.help)
        })
    }

    #[test]
    fn a_namespace_that_fits_lacks_nothing() {
        assert_eq!(text(&[], 1, 16), None);
        assert_eq!(text(&[("a", 1, 8)], 1, 8), None);
    }

    #[test]
    fn the_namespace_that_lacks_zones_is_named_with_numbers_that_fit() {
        let (why, help) = text(&[("a", 1, 4)], 1, 9).expect("its part is 8");
        assert_eq!(
            why,
            "with weight 1 its part is 8 of the 16 essential active zones of the drive, and --active 9 needs 9"
        );
        assert_eq!(help, "use --weight 2");
        let (why, help) = text(&[("a", 2, 4), ("b", 2, 7)], 1, 1).expect("the part of b would be 6");
        assert!(why.starts_with("with weight 1 it would leave \"b\" 6 of the 16 essential"), "{why}");
        assert!(why.ends_with("of which that one needs 7"), "{why}");
        assert_eq!(help, "delete a namespace first: the weights and active zones of existing ones cannot be changed");
        let (why, help) = text(&[("a", 4, 8)], 8, 4).expect("the part of a would be 5");
        assert!(why.starts_with("with weight 8 it would leave \"a\" 5"), "{why}");
        assert_eq!(help, "use --weight 2");
        let (_, help) = text(&[("a", 4, 8)], 4, 12).expect("eight are left");
        assert_eq!(help, "use --weight 4 --active 8, the most that fit beside the others");
    }

    #[test]
    fn each_proposal_fits() {
        for (weight, active) in [(1, 9), (8, 4), (4, 12), (1000, 1), (1, 16)] {
            let others = [("a", 3, 4), ("b", 4, 4)];
            let Some((_, help)) = text(&others, weight, active) else { continue };
            let number = |option: &str| {
                let rest = help.split_once(option).map(|(_, rest)| rest)?;
                rest.split([' ', ',']).find(|word| !word.is_empty())?.parse().ok()
            };
            let weight = number("--weight").expect("a weight is proposed");
            assert_eq!(text(&others, weight, number("--active").unwrap_or(active)), None, "{help}");
        }
    }
}
