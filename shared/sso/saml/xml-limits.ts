import { SamlRefused } from "./saml-refused.ts";

/** Maximum size in bytes of UTF-8. A response with 150 groups, the most that Entra sends, has about 30 KiB. */
const MAX_BYTES = 256 * 1024;
/** Maximum nesting depth of elements. */
const MAX_DEPTH = 50;
/** Maximum number of elements and attributes together. */
const MAX_NODES = 5_000;
/** Maximum number of comments and CDATA sections. Responses have none; metadata has a few. */
const MAX_OTHERS = 100;
/**
 * Maximum number of attributes of one element. The widest element of the SAML schemas, AuthnRequest, has 12 in addition to its
 * namespace declarations.
 */
const MAX_ATTRIBUTES = 100;
/**
 * Maximum number of namespace declarations on the path from the root to an element. xmldom copies them at each level. SAML Core
 * uses six prefixes (1.2); the root of a large provider's metadata declares about a dozen.
 */
const MAX_NAMESPACES = 64;
/** Maximum length of an attribute's value. The longest are URLs, and RFC 9110 (4.1) recommends supporting 8,000 octets. */
const MAX_VALUE = 8 * 1024;

/**
 * Characters that are not allowed in XML (XML 1.0, 2.2), and U+2029. xml-crypto's parser searches line ends with an expression
 * whose time grows with the square of the characters before a U+2029: 4 seconds for 40,000.
 */
const FORBIDDEN = /[^\t\n\r\u0020-\u2028\u202A-\uD7FF\uE000-\uFFFD\u{10000}-\u{10FFFF}]/u;
/** Matches an XML declaration, for example `<?xml version="1.0"?>`. */
const DECLARATION = /^<\?xml[ \t\r\n][\w \t\r\n.="'-]{0,120}\?>/;
/** Matches a reference such as `&amp;` or `&#x61;`. Without a document type, no others exist (XML 1.0, 4.6). */
const REFERENCE = /&(?:lt|gt|amp|apos|quot|#(\d{1,7})|#x([\dA-Fa-f]{1,6}));/y;
/**
 * xmldom parses these elements as HTML if they are in the XHTML namespace, and then copies the document for each of them. The
 * namespace can be written with references, so the names are rejected in any namespace.
 */
const HTML_NAMES = /^(?:script|textarea)$/i;
/**
 * Maximum number of different element names: xmldom searches the document once per name. Responses and metadata have a few
 * dozen.
 */
const MAX_NAMES = 256;
const NOT_IN_NAMES = new Set(" \t\r\n\"'&</>=?!");
const SPACE = new Set(" \t\r\n");

/** Counts of a document's parts. */
export interface XmlCounts {
  /** Nesting depth of elements; the root is at depth 1. */
  depth: number;
  elements: number;
  /** Includes namespace declarations. */
  attributes: number;
  /** Comments and CDATA sections. */
  others: number;
}

/**
 * Counts a document's parts in one pass, in linear time, and throws if it exceeds the limits. The parser and the signature
 * library need more than linear time and use recursion, so they only get XML that this function accepted.
 *
 * Accepts a subset of XML 1.0: no document type, no processing instructions, only the five predefined entities, and only white
 * space and comments around the root.
 *
 * @throws {SamlRefused} documentType; malformed for everything else that is not accepted, and beyond the limits above.
 */
export function checkXmlLimits(xml: string): XmlCounts {
  if (Buffer.byteLength(xml) > MAX_BYTES || FORBIDDEN.test(xml)) throw malformed();
  const counts: XmlCounts = { depth: 0, elements: 0, attributes: 0, others: 0 };
  /** The elements that are open at `position`, each with the number of namespace declarations from the root to it. */
  const open: { name: string; namespaces: number }[] = [];
  const names = new Set<string>();
  let position = DECLARATION.exec(xml)?.[0].length ?? 0;

  const skipSpace = () => {
    while (SPACE.has(xml[position]!)) position += 1;
  };
  const readName = (): string => {
    const start = position;
    while (position < xml.length && !NOT_IN_NAMES.has(xml[position]!)) position += 1;
    if (position === start) throw malformed();
    return xml.slice(start, position);
  };
  const expect = (text: string) => {
    if (!xml.startsWith(text, position)) throw malformed();
    position += text.length;
  };
  /** Reads up to and including a text; returns what precedes it. */
  const readUntil = (text: string): string => {
    const [start, end] = [position, xml.indexOf(text, position)];
    if (end < 0) throw malformed();
    position = end + text.length;
    return xml.slice(start, end);
  };

  function readText(): void {
    const end = xml.indexOf("<", position);
    const text = xml.slice(position, end < 0 ? xml.length : end);
    position += text.length;
    if (open.length > 0) checkReferences(text);
    else if (!Array.from(text).every((character) => SPACE.has(character))) throw malformed();
  }

  function readAttributes(): { attributes: number; namespaces: number } {
    let [attributes, namespaces] = [0, 0];
    for (;;) {
      const positionBeforeSpace = position;
      skipSpace();
      if (xml[position] === ">" || xml[position] === "/") return { attributes, namespaces };
      if (position === positionBeforeSpace || attributes === MAX_ATTRIBUTES) throw malformed();
      const name = readName();
      skipSpace();
      expect("=");
      skipSpace();
      const quote = xml[position];
      if (quote !== '"' && quote !== "'") throw malformed();
      position += 1;
      const value = readUntil(quote);
      if (value.length > MAX_VALUE || value.includes("<")) throw malformed();
      checkReferences(value);
      attributes += 1;
      if (name === "xmlns" || name.startsWith("xmlns:")) namespaces += 1;
    }
  }

  function readStart(): void {
    if (open.length === 0 && counts.elements > 0) throw malformed();
    position += 1;
    const name = readName();
    if (HTML_NAMES.test(name) || names.add(name).size > MAX_NAMES) throw malformed();
    const { attributes, namespaces } = readAttributes();
    counts.elements += 1;
    counts.attributes += attributes;
    counts.depth = Math.max(counts.depth, open.length + 1);
    open.push({ name, namespaces: (open.at(-1)?.namespaces ?? 0) + namespaces });
    if (counts.depth > MAX_DEPTH || open.at(-1)!.namespaces > MAX_NAMESPACES) throw malformed();
    if (xml[position] === "/") {
      position += 1;
      open.pop();
    }
    expect(">");
  }

  function readEnd(): void {
    position += "</".length;
    if (open.pop()?.name !== readName()) throw malformed();
    skipSpace();
    expect(">");
  }

  function readOther(): void {
    if (/^<!(DOCTYPE|ENTITY)/i.test(xml.slice(position, position + 9))) throw new SamlRefused("documentType");
    counts.others += 1;
    if (xml.startsWith("<!--", position)) {
      position += "<!--".length;
      readUntil("-->");
    } else {
      if (open.length === 0) throw malformed();
      expect("<![CDATA[");
      readUntil("]]>");
    }
  }

  while (position < xml.length) {
    if (xml[position] !== "<") readText();
    else if (xml[position + 1] === "/") readEnd();
    else if (xml[position + 1] === "!") readOther();
    // A processing instruction (`<?`) is malformed here, because no name starts with `?`.
    else readStart();
    if (counts.elements + counts.attributes > MAX_NODES || counts.others > MAX_OTHERS) throw malformed();
  }
  if (open.length > 0 || counts.elements === 0) throw malformed();
  return counts;
}

/** @throws {SamlRefused} malformed for a reference to anything but an allowed character. */
function checkReferences(text: string): void {
  for (let position = text.indexOf("&"); position >= 0; position = text.indexOf("&", position + 1)) {
    REFERENCE.lastIndex = position;
    const reference = REFERENCE.exec(text);
    if (!reference) throw malformed();
    const [, decimal, hexadecimal] = reference;
    if (decimal === undefined && hexadecimal === undefined) continue;
    const code = decimal === undefined ? Number.parseInt(hexadecimal!, 16) : Number(decimal);
    if (code > 0x10ffff || FORBIDDEN.test(String.fromCodePoint(code))) throw malformed();
  }
}

const malformed = () => new SamlRefused("malformed");
