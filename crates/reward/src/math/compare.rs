//! Equality of answers: what kind each is, and which comparison that asks for.

use super::limits::{Budget, MAX_MATCHED};
use super::matrix::{entries, without_determinants};
use super::numeric::{Point, value};
use super::plus_minus::expanded;
use super::relation::{is_assignment, is_equation, same_relation, value_side, without_approximation};
use super::scalar::{Rounding, equal};
use super::sets::same_real_set;
use super::tree::{Comparator, Joint, Node};

/// How answers are compared.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    pub(crate) rounding: Rounding,
    /// Whether the names of variables matter.
    pub(crate) strict: bool,
    /// Whether an inequality equals the set of its solutions when the reference is the set.
    pub(crate) set_relation: bool,
}

/// Whether `pred` is the answer `gold`, and the name of what decided.
pub(crate) fn compare_answers(
    gold: &Node,
    pred: &Node,
    rules: &Rules,
    budget: &Budget,
) -> (bool, &'static str) {
    let pred = if rules.strict { pred.clone() } else { renamed(pred, gold) };
    if gold.key() == pred.key() && !joints_conflict(gold, &pred) {
        return (true, "structure");
    }
    compare(&prepared(gold), &prepared(&pred), rules, budget)
}

/// With `±` expanded, lists of one and lists in lists flattened, and determinants written out.
fn prepared(node: &Node) -> Node {
    let node = expanded(&without_determinants(node));
    match node {
        Node::List { items, joint } => list(items, joint),
        Node::Set(items) => match list(items, Joint::Unsaid) {
            Node::List { items, .. } => Node::Set(items),
            other => Node::Set(vec![other]),
        },
        other => other,
    }
}

fn list(items: Vec<Node>, joint: Joint) -> Node {
    let mut flat = Vec::with_capacity(items.len());
    for item in items {
        match expanded(&item) {
            Node::List { items, .. } => flat.extend(items),
            other => flat.push(other),
        }
    }
    match flat.len() {
        1 => flat.remove(0),
        _ => Node::List { items: flat, joint },
    }
}

/// `pred` with its variables named as those of `gold`, in the order of their first appearance.
fn renamed(pred: &Node, gold: &Node) -> Node {
    let (mut from, mut to) = (Vec::new(), Vec::new());
    symbols(pred, &mut from);
    symbols(gold, &mut to);
    if from.len() != to.len() {
        return pred.clone();
    }
    fn rename(node: &Node, from: &[String], to: &[String]) -> Node {
        match node {
            Node::Symbol(name) => {
                let at = from.iter().position(|other| other == name);
                Node::Symbol(at.map_or_else(|| name.clone(), |at| to[at].clone()))
            }
            other => other.with_parts(&mut |part| rename(part, from, to)),
        }
    }
    rename(pred, &from, &to)
}

fn symbols(node: &Node, found: &mut Vec<String>) {
    match node {
        Node::Symbol(name) if !found.contains(name) => found.push(name.clone()),
        other => other.parts().into_iter().for_each(|part| symbols(part, found)),
    }
}

/// [`compare_answers`] of prepared nodes.
pub(crate) fn compare(gold: &Node, pred: &Node, rules: &Rules, budget: &Budget) -> (bool, &'static str) {
    if budget.spend(1).is_none() {
        return (false, "limit");
    }
    let gold = member(&without_approximation(gold)).clone();
    let pred = member(&without_approximation(pred)).clone();
    if let (Some(gold), true) = (named_one_by_one(&gold), holds_equations(&pred)) {
        return compare(&gold, &pred, rules, budget);
    }
    if let (Some(pred), true) = (named_one_by_one(&pred), holds_equations(&gold)) {
        return compare(&gold, &pred, rules, budget);
    }
    // The form of the reference counts: `5` is answered by `x = 5`, and `x = 5` by `5`, but no equation by a side of it.
    if is_equation(&pred)
        && !is_equation(&gold)
        && !holds_equations(&gold)
        && let Some(side) = value_side(&pred)
    {
        return compare(&gold, &expanded(side), rules, budget);
    }
    if is_assignment(&gold)
        && !is_equation(&pred)
        && !holds_equations(&pred)
        && let Some(side) = value_side(&gold)
    {
        return compare(&expanded(side), &pred, rules, budget);
    }
    let (gold_condition, pred_condition) = (is_condition(&gold), is_condition(&pred));
    if gold_condition && is_set(&pred) {
        return (same_real_set(&gold, &pred, budget) == Some(true), "set");
    }
    if pred_condition && is_set(&gold) {
        let allowed = rules.set_relation || matches!(gold, Node::Where(_));
        return (allowed && same_real_set(&gold, &pred, budget) == Some(true), "set");
    }
    if gold_condition && pred_condition && (is_list(&gold) || is_list(&pred)) {
        if let Some(true) = same_real_set(&gold, &pred, budget) {
            return (true, "set");
        }
        if joints_conflict(&gold, &pred) {
            return (false, "set");
        }
    }
    if matches!(gold, Node::Relation { .. }) && matches!(pred, Node::Relation { .. }) {
        return same_relation(&gold, &pred, rules, budget);
    }
    if let Some(outcome) = compare_collections(&gold, &pred, rules, budget) {
        return outcome;
    }
    match (entries(&gold), entries(&pred)) {
        (Some(a), Some(b)) => {
            let same = a.len() == b.len() && a.iter().zip(&b).all(|(x, y)| in_order(x, y, rules, budget));
            return (same, "matrix");
        }
        (None, None) => {}
        _ => return (false, "matrix"),
    }
    if matches!(gold, Node::Relation { .. }) || matches!(pred, Node::Relation { .. }) {
        return (false, "relation");
    }
    equal(&gold, &pred, rules.rounding, budget)
}

/// `a = 1, b = 2` for `(a, b) = (1, 2)`.
fn named_one_by_one(node: &Node) -> Option<Node> {
    let Node::Relation { first, rest } = node else { return None };
    let (Node::Tuple(names), [(Comparator::Equal, Node::Tuple(values))]) = (first.as_ref(), rest.as_slice())
    else {
        return None;
    };
    let equation = |(name, value): (&Node, &Node)| Node::Relation {
        first: Box::new(name.clone()),
        rest: vec![(Comparator::Equal, value.clone())],
    };
    (names.len() == values.len())
        .then(|| Node::List { items: names.iter().zip(values).map(equation).collect(), joint: Joint::And })
}

/// The set of `x ∈ S`.
fn member(node: &Node) -> &Node {
    match node {
        Node::Member(_, set) => set,
        other => other,
    }
}

/// Whether one side joins inequalities by "and" and the other by "or".
fn joints_conflict(a: &Node, b: &Node) -> bool {
    match (a, b) {
        (Node::List { joint: a_joint, .. }, Node::List { joint: b_joint, .. }) => {
            is_condition(a)
                && is_condition(b)
                && matches!((a_joint, b_joint), (Joint::And, Joint::Or) | (Joint::Or, Joint::And))
        }
        _ => false,
    }
}

fn is_list(node: &Node) -> bool {
    matches!(node, Node::List { .. })
}

fn holds_equations(node: &Node) -> bool {
    matches!(node, Node::List { items, .. } if items.iter().any(is_equation))
}

/// An inequality, or several.
fn is_condition(node: &Node) -> bool {
    match node {
        Node::Relation { .. } => !is_equation(node),
        Node::List { items, .. } => {
            !items.is_empty()
                && items.iter().all(|item| matches!(item, Node::Relation { .. }) && !is_equation(item))
        }
        _ => false,
    }
}

fn is_set(node: &Node) -> bool {
    match node {
        Node::Tuple(items) | Node::Bracketed { items, .. } => items.len() == 2,
        Node::Union(_)
        | Node::Intersection(_)
        | Node::Difference(..)
        | Node::Set(_)
        | Node::Reals
        | Node::Where(_) => true,
        _ => false,
    }
}

/// Compares if at least one side is a set, list, tuple or interval.
fn compare_collections(
    gold: &Node,
    pred: &Node,
    rules: &Rules,
    budget: &Budget,
) -> Option<(bool, &'static str)> {
    let outcome = match (gold, pred) {
        (Node::Tuple(a), Node::Tuple(b)) => (in_order(a, b, rules, budget), "tuple"),
        (Node::Bracketed { open, close, items }, Node::Bracketed { open: o, close: c, items: others }) => {
            (open == o && close == c && in_order(items, others, rules, budget), "interval")
        }
        (Node::Bracketed { .. }, Node::Tuple(_)) | (Node::Tuple(_), Node::Bracketed { .. }) => {
            (false, "interval")
        }
        // Items without brackets are a tuple if they come in its order.
        (Node::Tuple(a), Node::List { items: b, .. }) | (Node::List { items: a, .. }, Node::Tuple(b)) => {
            (in_order(a, b, rules, budget), "tuple")
        }
        (Node::Set(a) | Node::List { items: a, .. }, Node::Set(b) | Node::List { items: b, .. }) => {
            if names_differ(a) != names_differ(b) {
                // Bare values answer for named ones in the order of the names.
                (in_order(a, b, rules, budget), "list")
            } else {
                (unordered(a, b, rules, budget), "set")
            }
        }
        (
            Node::Union(_) | Node::Intersection(_) | Node::Difference(..) | Node::Reals | Node::Where(_),
            other,
        )
        | (
            other,
            Node::Union(_) | Node::Intersection(_) | Node::Difference(..) | Node::Reals | Node::Where(_),
        ) => {
            if !is_set(other) {
                return Some((false, "set"));
            }
            match same_real_set(gold, pred, budget) {
                Some(same) => (same, "set"),
                None => match (gold, pred) {
                    (Node::Union(a), Node::Union(b)) => (unordered(a, b, rules, budget), "set"),
                    _ => (gold.key() == pred.key(), "set"),
                },
            }
        }
        (Node::Set(items), other) | (other, Node::Set(items)) => {
            let (is_gold, single) = (std::ptr::eq(other, pred), items.len() == 1);
            let same = single && !matches!(other, Node::Tuple(_) | Node::Bracketed { .. }) && {
                let item = expanded(&items[0]);
                if is_gold {
                    compare(&item, other, rules, budget).0
                } else {
                    compare(other, &item, rules, budget).0
                }
            };
            (same, "set")
        }
        (Node::List { .. } | Node::Tuple(_) | Node::Bracketed { .. }, _)
        | (_, Node::List { .. } | Node::Tuple(_) | Node::Bracketed { .. }) => (false, "list"),
        _ => return None,
    };
    Some(outcome)
}

/// Whether the items are assignments to names of which at least two differ.
fn names_differ(items: &[Node]) -> bool {
    let mut names = items.iter().map(|item| match item {
        Node::Relation { first, .. } if is_assignment(item) => Some(first.key()),
        _ => None,
    });
    let Some(Some(first)) = names.next() else { return false };
    let mut differ = false;
    for name in names {
        match name {
            Some(name) => differ |= name != first,
            None => return false,
        }
    }
    differ
}

fn in_order(a: &[Node], b: &[Node], rules: &Rules, budget: &Budget) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| compare(&expanded(a), &expanded(b), rules, budget).0)
}

/// Whether each item of one side has its equal on the other; repetitions do not count.
fn unordered(a: &[Node], b: &[Node], rules: &Rules, budget: &Budget) -> bool {
    let (a, b) = (distinct(a, rules, budget), distinct(b, rules, budget));
    if a.len() != b.len() {
        return false;
    }
    if a.len() > MAX_MATCHED {
        return a.iter().zip(&b).all(|(a, b)| compare(a, b, rules, budget).0);
    }
    let mut left: Vec<&Node> = b;
    a.iter().all(|item| match left.iter().position(|other| compare(item, other, rules, budget).0) {
        Some(at) => {
            left.swap_remove(at);
            true
        }
        None => false,
    })
}

/// The items without repetitions; large collections sorted by value.
fn distinct<'a>(items: &'a [Node], rules: &Rules, budget: &Budget) -> Vec<&'a Node> {
    if items.len() > MAX_MATCHED {
        let mut keyed: Vec<(Vec<i64>, &Node)> =
            items.iter().map(|item| (fingerprint(item, budget), item)).collect();
        keyed.sort_by(|a, b| a.0.cmp(&b.0));
        keyed.dedup_by(|a, b| a.0 == b.0 && compare(a.1, b.1, rules, budget).0);
        return keyed.into_iter().map(|(_, item)| item).collect();
    }
    let mut kept: Vec<&Node> = Vec::new();
    for item in items {
        if !kept.iter().any(|other| compare(other, item, rules, budget).0) {
            kept.push(item);
        }
    }
    kept
}

/// Values to sort by, coarse enough that equal items have equal ones.
fn fingerprint(node: &Node, budget: &Budget) -> Vec<i64> {
    match node {
        Node::Tuple(items) => items.iter().flat_map(|item| fingerprint(item, budget)).collect(),
        other => {
            let side = value_side(other).unwrap_or(other);
            let found = value(side, &mut Point::drawn(0, budget));
            found.map_or_else(Vec::new, |value| {
                vec![(value.re * 1e5).round() as i64, (value.im * 1e5).round() as i64]
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::limits::MAX_STEPS;
    use crate::math::parser::parse;

    fn rules() -> Rules {
        Rules { rounding: Rounding { places: 6, lenient_percent: false }, strict: true, set_relation: false }
    }

    fn outcome(gold: &str, pred: &str, rules: Rules) -> (bool, &'static str) {
        compare_answers(&parse(gold).unwrap(), &parse(pred).unwrap(), &rules, &Budget::new(MAX_STEPS))
    }

    #[test]
    fn the_kind_of_answer_decides_how_it_is_compared() {
        for (gold, pred, rule) in [
            ("1/2", "2/4", "rational"),
            ("0.333333", r"\frac13", "decimal"),
            ("(x+1)^2", "x^2+2x+1", "polynomial"),
            (r"\sqrt8", r"2\sqrt2", "numeric"),
            (r"\{1,2\}", "2,1", "set"),
            ("(1,2)", r"(\frac22,2)", "tuple"),
            ("[0,1/2)", "[0,0.5)", "interval"),
            ("x>1", r"(1,\infty)", "set"),
            ("x>1", "1<x", "relation"),
            ("y=2x", "2x-y=0", "relation"),
            (r"\text{Yes}", "yes", "text"),
            (r"50\%", "0.5", "percent"),
        ] {
            assert_eq!(outcome(gold, pred, rules()), (true, rule), "{gold} {pred}");
        }
    }

    #[test]
    fn switches_change_what_is_accepted() {
        assert!(!outcome("(1,2)", "1<x<2", rules()).0);
        assert!(outcome("(1,2)", "1<x<2", Rules { set_relation: true, ..rules() }).0);
        assert!(!outcome("f(x)", "f(y)", rules()).0);
        assert!(outcome("f(x)", "f(y)", Rules { strict: false, ..rules() }).0);
        let lenient = Rounding { places: 6, lenient_percent: true };
        assert!(!outcome("0.28", "28", rules()).0);
        assert!(outcome("0.28", "28", Rules { rounding: lenient, ..rules() }).0);
        let coarse = Rounding { places: 2, lenient_percent: false };
        assert!(!outcome("2.6667", "8/3", rules()).0);
        assert!(outcome("2.6667", "8/3", Rules { rounding: coarse, ..rules() }).0);
    }

    #[test]
    fn a_thousand_elements_are_matched_after_sorting() {
        let set = |items: Vec<String>| format!(r"\{{{}\}}", items.join(", "));
        let up = set((0..1000).map(|k| k.to_string()).collect());
        let down = set((0..1000).rev().map(|k| format!("{k}.0")).collect());
        let budget = Budget::new(MAX_STEPS);
        assert!(compare_answers(&parse(&up).unwrap(), &parse(&down).unwrap(), &rules(), &budget).0);
        assert!(budget.spent() < 40_000, "{}", budget.spent());
        let other = set((1..=1000).map(|k| k.to_string()).collect());
        assert!(!outcome(&up, &other, rules()).0);
    }
}
