//! Matrices: sums, multiples and products are worked out entry by entry.

use super::tree::{Function, Node};

type Rows = Vec<Vec<Node>>;

/// Most rows or columns of a matrix that is multiplied.
const MAX_SIDE: usize = 12;

/// The entries of `node`; `None` if it is no matrix.
pub(crate) fn entries(node: &Node) -> Option<Rows> {
    match node {
        Node::Matrix(rows) => Some(rows.clone()),
        Node::Sum(terms) => {
            let mut terms = terms.iter().map(entries).collect::<Option<Vec<_>>>()?.into_iter();
            let first = terms.next()?;
            terms.try_fold(first, entrywise)
        }
        Node::Negative(inner) => Some(scaled(&Node::integer(-1), &entries(inner)?)),
        Node::Quotient(above, below) => {
            let inverse = Node::Quotient(Box::new(Node::integer(1)), below.clone());
            Some(scaled(&inverse, &entries(above)?))
        }
        Node::Product(factors) => {
            let mut product: Option<Rows> = None;
            let mut scale = Vec::new();
            for factor in factors {
                match entries(factor) {
                    Some(rows) => {
                        product = Some(match product {
                            Some(left) => multiplied(&left, &rows)?,
                            None => rows,
                        });
                    }
                    None => scale.push(factor.clone()),
                }
            }
            let product = product?;
            Some(if scale.is_empty() { product } else { scaled(&Node::Product(scale), &product) })
        }
        Node::Power(base, exponent) => {
            let rows = entries(base)?;
            match exponent.as_ref() {
                Node::Symbol(name) if name == "T" || name == "\\top" => Some(transposed(&rows)),
                _ => None,
            }
        }
        _ => None,
    }
}

/// `node` with the determinants of small matrices written out.
pub(crate) fn without_determinants(node: &Node) -> Node {
    if let Node::Function(Function::Determinant, arguments) = node
        && let [argument] = arguments.as_slice()
        && let Some(determinant) = entries(argument).and_then(|rows| determinant(&rows))
    {
        return determinant;
    }
    node.with_parts(&mut without_determinants)
}

fn determinant(rows: &Rows) -> Option<Node> {
    if rows.len() > 4 || rows.iter().any(|row| row.len() != rows.len()) {
        return None;
    }
    let [first, below @ ..] = rows.as_slice() else { return None };
    if let ([entry], []) = (first.as_slice(), below) {
        return Some(entry.clone());
    }
    let mut terms = Vec::new();
    for (column, entry) in first.iter().enumerate() {
        let minor: Rows = below
            .iter()
            .map(|row| {
                row.iter().enumerate().filter(|(at, _)| *at != column).map(|(_, node)| node.clone()).collect()
            })
            .collect();
        let term = Node::Product(vec![entry.clone(), determinant(&minor)?]);
        terms.push(if column % 2 == 0 { term } else { Node::Negative(Box::new(term)) });
    }
    Some(Node::Sum(terms))
}

fn entrywise(a: Rows, b: Rows) -> Option<Rows> {
    let same_shape = a.len() == b.len() && a.iter().zip(&b).all(|(x, y)| x.len() == y.len());
    same_shape.then(|| {
        let add = |(x, y): (Node, Node)| Node::Sum(vec![x, y]);
        a.into_iter().zip(b).map(|(x, y)| x.into_iter().zip(y).map(add).collect()).collect()
    })
}

fn scaled(scale: &Node, rows: &Rows) -> Rows {
    let entry = |node: &Node| Node::Product(vec![scale.clone(), node.clone()]);
    rows.iter().map(|row| row.iter().map(entry).collect()).collect()
}

fn transposed(rows: &Rows) -> Rows {
    let width = rows.first().map_or(0, Vec::len);
    (0..width).map(|column| rows.iter().filter_map(|row| row.get(column).cloned()).collect()).collect()
}

fn multiplied(a: &Rows, b: &Rows) -> Option<Rows> {
    let inner = b.len();
    let width = b.first()?.len();
    let small = a.len() <= MAX_SIDE && inner <= MAX_SIDE && width <= MAX_SIDE;
    if !small || a.iter().any(|row| row.len() != inner) {
        return None;
    }
    let entry = |row: &[Node], column: usize| {
        let term = |(at, node): (usize, &Node)| Node::Product(vec![node.clone(), b[at][column].clone()]);
        Node::Sum(row.iter().enumerate().map(term).collect())
    };
    let product: Rows = a.iter().map(|row| (0..width).map(|column| entry(row, column)).collect()).collect();
    // Products of products would grow without bound.
    let size: usize = product.iter().flatten().map(size).sum();
    (size <= super::limits::MAX_NODES).then_some(product)
}

fn size(node: &Node) -> usize {
    1 + node.parts().into_iter().map(size).sum::<usize>()
}
