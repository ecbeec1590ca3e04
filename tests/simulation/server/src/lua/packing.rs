//! The part of the library `struct` that our scripts use: numbers (`d`) and texts of a fixed length (`c24`), with the lowest byte
//! first (`<`).

use mlua::{Error, Lua, LuaString, MultiValue, Result, Table, Value, Variadic};

/// A field of a format.
enum Field {
    Number,
    Text(usize),
}

const NUMBER: usize = size_of::<f64>();

impl Field {
    fn len(&self) -> usize {
        match self {
            Self::Number => NUMBER,
            Self::Text(len) => *len,
        }
    }
}

/// The library.
pub(super) fn library(lua: &Lua) -> Result<Table> {
    let library = lua.create_table()?;
    library.set("pack", lua.create_function(pack)?)?;
    library.set("unpack", lua.create_function(unpack)?)?;
    Ok(library)
}

fn pack(lua: &Lua, (format, values): (LuaString, Variadic<Value>)) -> Result<LuaString> {
    let mut packed = Vec::new();
    let mut values = values.into_iter();
    for field in fields(&format)? {
        let value = values.next().ok_or_else(|| Error::runtime("bad argument to 'pack'"))?;
        match field {
            Field::Number => {
                let number: f64 = lua.unpack(value)?;
                packed.extend(number.to_le_bytes());
            }
            Field::Text(len) => {
                let text: LuaString = lua.unpack(value)?;
                let text = text.as_bytes();
                let text = text.get(..len).ok_or_else(|| Error::runtime("string too short"))?;
                packed.extend(text);
            }
        }
    }
    lua.create_string(packed)
}

/// The values, and the place behind them.
fn unpack(lua: &Lua, (format, packed): (LuaString, LuaString)) -> Result<MultiValue> {
    let packed = packed.as_bytes();
    let (mut values, mut at) = (Vec::new(), 0);
    for field in fields(&format)? {
        let bytes = packed.get(at..at + field.len());
        let bytes = bytes.ok_or_else(|| Error::runtime("data string too short"))?;
        values.push(match field {
            Field::Number => {
                let bytes =
                    bytes.try_into().map_err(|_| Error::runtime("data string too short"))?;
                Value::Number(f64::from_le_bytes(bytes))
            }
            Field::Text(_) => Value::String(lua.create_string(bytes)?),
        });
        at += field.len();
    }
    values.push(Value::Number(at as f64 + 1.0));
    Ok(MultiValue::from_iter(values))
}

fn fields(format: &LuaString) -> Result<Vec<Field>> {
    let format = format.to_str()?;
    let mut letters = format.strip_prefix('<').unwrap_or_default().chars().peekable();
    let mut fields = Vec::new();
    while let Some(letter) = letters.next() {
        fields.push(match letter {
            'd' => Field::Number,
            'c' => {
                let mut len = 0;
                while let Some(digit) = letters.peek().and_then(|letter| letter.to_digit(10)) {
                    len = len * 10 + digit as usize;
                    letters.next();
                }
                Field::Text(len)
            }
            other => return Err(Error::runtime(format!("the simulation does not pack '{other}'"))),
        });
    }
    Ok(fields)
}
