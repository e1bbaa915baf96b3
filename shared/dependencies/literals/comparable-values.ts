/**
 * Decides which texts the detection of plaintext secrets compares. The detection finds settings whose value equals a secret's
 * value. Both sides are filtered: values of secrets by `isComparable`, texts of settings by `candidatesIn`.
 */

/** Shorter values occur in settings by chance: names, ports, words. */
const MIN_CHARACTERS = 12;

/**
 * Minimum entropy per character in bits (Shannon). Repeated or sequential characters have less. Random digits have 3.3, and
 * twelve different characters 3.6.
 */
const MIN_BITS = 2.5;

/** Maximum number of parts of one text that are compared. */
const MAX_PARTS = 100;

/** Returns whether a value is long and irregular enough that an equal setting must be a copy of it. */
export function isComparable(value: string): boolean {
  const counts = new Map<string, number>();
  let length = 0;
  for (const character of value) {
    counts.set(character, (counts.get(character) ?? 0) + 1);
    length++;
  }
  if (length < MIN_CHARACTERS) return false;
  let bits = 0;
  for (const count of counts.values()) bits -= (count / length) * Math.log2(count / length);
  return bits >= MIN_BITS;
}

/**
 * Returns the texts of a setting that may be a secret's value: the whole text, the values of a connection string's parts
 * (`Server=…;Password=…`), and the password of an address. Leaves out texts that are too short or too regular.
 */
export function candidatesIn(setting: string): string[] {
  const whole = setting.trim();
  const parts = whole.includes("=") ? whole.split(";", MAX_PARTS).map(valueOfPart) : [];
  return [...new Set([whole, ...parts, passwordIn(whole)])].filter(isComparable);
}

function valueOfPart(part: string): string {
  const value = part.slice(part.indexOf("=") + 1).trim();
  return /^(['"]).*\1$/s.test(value) ? value.slice(1, -1) : value;
}

function passwordIn(text: string): string {
  if (!URL.canParse(text)) return "";
  const { password } = new URL(text);
  try {
    return decodeURIComponent(password);
  } catch {
    return password; // An invalid escape means that the password is not encoded, so the raw text is used.
  }
}
