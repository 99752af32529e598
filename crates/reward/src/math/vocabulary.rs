//! The names that the grader knows: commands, signs, words, functions and units.

use super::tree::Function;

/// Commands that say how something looks, not what it is; they are left out.
pub(crate) fn is_dropped(name: &str) -> bool {
    matches!(
        name,
        "displaystyle"
            | "textstyle"
            | "scriptstyle"
            | "limits"
            | "nolimits"
            | "quad"
            | "qquad"
            | "enspace"
            | "thinspace"
            | "big"
            | "Big"
            | "bigg"
            | "Bigg"
            | "bigl"
            | "bigr"
            | "Bigl"
            | "Bigr"
            | "biggl"
            | "biggr"
            | "Biggl"
            | "Biggr"
            | "hfill"
            | "rm"
            | "bf"
            | "it"
            | "large"
            | "Large"
            | "hspace"
            | "phantom"
            | "nonumber"
            | "middle"
            | "euro"
            | "pounds"
    )
}

/// Commands whose argument stands for the whole.
pub(crate) fn is_transparent(name: &str) -> bool {
    matches!(
        name,
        "boxed"
            | "fbox"
            | "mathbf"
            | "mathit"
            | "boldsymbol"
            | "bm"
            | "mathcal"
            | "mathscr"
            | "mathfrak"
            | "mathnormal"
            | "underline"
            | "cancel"
            | "ensuremath"
    )
}

/// What a run of letters stands for: a command's name, or one sign.
pub(crate) fn plain_word(word: &str) -> Option<&'static str> {
    Some(match word {
        "and" | "And" | "AND" => "and",
        "or" | "Or" | "OR" => "or",
        "percent" | "percentage" | "pct" | "Percent" => "%",
        "degrees" | "degree" | "deg" => "°",
        "infinity" | "inf" | "infty" => "infty",
        "pi" => "pi",
        "sqrt" => "sqrt",
        "sin" => "sin",
        "cos" => "cos",
        "tan" => "tan",
        "cot" => "cot",
        "sec" => "sec",
        "csc" => "csc",
        "arcsin" | "asin" => "arcsin",
        "arccos" | "acos" => "arccos",
        "arctan" | "atan" => "arctan",
        "log" => "log",
        "ln" => "ln",
        "lg" => "lg",
        "exp" => "exp",
        "abs" => "abs",
        "gcd" => "gcd",
        "lcm" => "lcm",
        "max" => "max",
        "min" => "min",
        "det" => "det",
        _ => return None,
    })
}

/// The sign that a command writes.
pub(crate) fn sign_of_command(name: &str) -> Option<char> {
    Some(match name {
        "cdot" | "times" | "ast" | "bullet" => '*',
        "div" => '/',
        "pm" => '±',
        "mp" => '∓',
        "le" | "leq" | "leqslant" | "leqq" => '≤',
        "ge" | "geq" | "geqslant" | "geqq" => '≥',
        "lt" => '<',
        "gt" => '>',
        "ne" | "neq" => '≠',
        "approx" | "thickapprox" | "simeq" => '≈',
        "equiv" => '≡',
        "in" => '∈',
        "subset" | "subseteq" => '⊂',
        "sim" => '∼',
        "cong" => '≅',
        "parallel" => '∥',
        "perp" => '⟂',
        "to" | "rightarrow" | "mapsto" | "longrightarrow" => '→',
        "Rightarrow" | "implies" | "Longrightarrow" | "therefore" => '⇒',
        "iff" | "Leftrightarrow" | "Longleftrightarrow" => '⇔',
        "cup" | "bigcup" => '∪',
        "cap" | "bigcap" => '∩',
        "setminus" | "backslash" | "smallsetminus" => '∖',
        "mid" => '∣',
        "colon" => ':',
        "vert" | "lvert" | "rvert" => '|',
        "Vert" | "lVert" | "rVert" => '‖',
        "langle" => '⟨',
        "rangle" => '⟩',
        "lfloor" => '⌊',
        "rfloor" => '⌋',
        "lceil" => '⌈',
        "rceil" => '⌉',
        "lbrace" => '⦃',
        "rbrace" => '⦄',
        "lbrack" => '[',
        "rbrack" => ']',
        "lparen" => '(',
        "rparen" => ')',
        "degree" => '°',
        "circ" => '∘',
        "prime" => '\'',
        "percent" => '%',
        "colonequals" => '=',
        _ => return None,
    })
}

/// What a character of Unicode stands for: a command's name, or one sign.
pub(crate) fn sign_of_char(c: char) -> Option<&'static str> {
    Some(match c {
        '−' | '–' | '‐' | '‑' => "-",
        '×' | '·' | '⋅' | '∙' => "*",
        '÷' | '∕' | '⁄' => "/",
        '：' => ":",
        '，' | '、' => ",",
        '（' => "(",
        '）' => ")",
        '；' => ";",
        '％' => "%",
        '＝' => "=",
        '⩽' => "≤",
        '⩾' => "≥",
        '′' | '’' => "'",
        'π' => "pi",
        '∞' => "infty",
        '√' => "sqrt",
        'α' => "alpha",
        'β' => "beta",
        'γ' => "gamma",
        'θ' => "theta",
        'λ' => "lambda",
        'μ' => "mu",
        'φ' => "phi",
        'ω' => "omega",
        'Δ' => "Delta",
        'ℝ' => "reals",
        '∅' => "emptyset",
        '∑' => "sum",
        _ => return None,
    })
}

/// The function of one argument that a command names. Roots, logarithms and the like are parsed apart.
pub(crate) fn function(name: &str) -> Option<Function> {
    Some(match name {
        "sin" => Function::Sin,
        "cos" => Function::Cos,
        "tan" | "tg" => Function::Tan,
        "cot" | "ctg" => Function::Cot,
        "sec" => Function::Sec,
        "csc" => Function::Csc,
        "arcsin" => Function::Asin,
        "arccos" => Function::Acos,
        "arctan" | "arctg" => Function::Atan,
        "sinh" => Function::Sinh,
        "cosh" => Function::Cosh,
        "tanh" => Function::Tanh,
        "ln" => Function::Ln,
        "exp" => Function::Exp,
        "abs" => Function::Abs,
        "gcd" => Function::Gcd,
        "lcm" => Function::Lcm,
        "max" => Function::Max,
        "min" => Function::Min,
        "det" => Function::Determinant,
        _ => return None,
    })
}

/// The inverse of a function that `^{-1}` may turn.
pub(crate) fn inverse(function: Function) -> Option<Function> {
    Some(match function {
        Function::Sin => Function::Asin,
        Function::Cos => Function::Acos,
        Function::Tan => Function::Atan,
        _ => return None,
    })
}

/// One name for each unit that is known, so that different units can be told from different spellings.
pub(crate) fn unit(word: &str) -> Option<&'static str> {
    Some(match word.trim_end_matches('.').to_ascii_lowercase().as_str() {
        "mm" | "millimeter" | "millimeters" | "millimetres" => "mm",
        "cm" | "centimeter" | "centimeters" | "centimetre" | "centimetres" => "cm",
        "dm" => "dm",
        "m" | "meter" | "meters" | "metre" | "metres" => "m",
        "km" | "kilometer" | "kilometers" | "kilometres" => "km",
        "in" | "inch" | "inches" => "in",
        "ft" | "foot" | "feet" => "ft",
        "yd" | "yard" | "yards" => "yd",
        "mi" | "mile" | "miles" => "mi",
        "mg" | "milligrams" => "mg",
        "g" | "gm" | "gram" | "grams" => "g",
        "kg" | "kilogram" | "kilograms" => "kg",
        "lb" | "lbs" | "pound" | "pounds" => "lb",
        "oz" | "ounce" | "ounces" => "oz",
        "ml" | "milliliters" => "ml",
        "l" | "liter" | "liters" | "litre" | "litres" => "l",
        "s" | "sec" | "second" | "seconds" => "s",
        "min" | "mins" | "minute" | "minutes" => "min",
        "h" | "hr" | "hrs" | "hour" | "hours" => "h",
        "day" | "days" => "day",
        "week" | "weeks" => "week",
        "month" | "months" => "month",
        "year" | "years" | "yr" | "yrs" => "year",
        "mph" => "mph",
        "kmh" | "kph" => "km/h",
        "dollar" | "dollars" | "usd" => "dollar",
        "cent" | "cents" => "cent",
        "euro" | "euros" => "euro",
        "rupee" | "rupees" | "rs" => "rupee",
        "unit" | "units" => "unit",
        "hectare" | "hectares" => "hectare",
        "acre" | "acres" => "acre",
        "gallon" | "gallons" => "gallon",
        "radian" | "radians" | "rad" => "rad",
        _ => return None,
    })
}

/// A unit of several words, or of one with a power, spelled in one way; words that are no unit keep their text.
pub(crate) fn unit_name(text: &str) -> String {
    let parts: Vec<String> = text.replace(" per ", "/").split('/').map(one_unit_name).collect();
    parts.join("/")
}

/// Of a unit that is no quotient.
fn one_unit_name(text: &str) -> String {
    let mut words = Vec::new();
    let mut power = String::new();
    for word in text.split(|c: char| c.is_whitespace() || c == '^').filter(|word| !word.is_empty()) {
        match word.to_ascii_lowercase().as_str() {
            "square" | "sq" | "sq." | "2" | "{2}" => power = "^2".into(),
            "cubic" | "cu" | "3" | "{3}" => power = "^3".into(),
            lower => words.push(unit(word).map_or_else(|| format!("?{lower}"), str::to_owned)),
        }
    }
    words.join(" ") + &power
}

/// Whether a word may stand in plain mathematics.
pub(crate) fn is_known_word(word: &str) -> bool {
    plain_word(word).is_some() || unit(word).is_some() || matches!(word, "square" | "cubic" | "sq" | "per")
}

/// Whether two names of units contradict each other: both known and different. The unit `unit` fits any, and an
/// unwritten power fits any.
pub(crate) fn units_conflict(a: &str, b: &str) -> bool {
    let (a_base, _) = a.split_once('^').unwrap_or((a, ""));
    let (b_base, _) = b.split_once('^').unwrap_or((b, ""));
    let known = |name: &str| !name.is_empty() && !name.contains('?') && name != "unit";
    known(a_base) && known(b_base) && a_base != b_base
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_a_unit_agree_and_different_units_conflict() {
        assert_eq!(unit_name("square Centimeters"), "cm^2");
        assert_eq!(unit_name("cm^2"), "cm^2");
        assert!(!units_conflict(&unit_name("cm"), &unit_name("centimeters")));
        assert!(!units_conflict(&unit_name("square units"), &unit_name("cm^2")));
        assert!(!units_conflict(&unit_name("apples"), &unit_name("cm")));
        assert!(units_conflict(&unit_name("cm"), &unit_name("m")));
        assert!(units_conflict("mod 5", "mod 7"));
        assert!(units_conflict(&unit_name("km/h"), &unit_name("m/s")));
        assert!(!units_conflict(&unit_name("km/h"), &unit_name("kilometers per hour")));
        assert!(!units_conflict(&unit_name("apples/h"), &unit_name("m/s")));
    }
}
