import { createPublicKey } from "node:crypto";
import { readFileSync } from "node:fs";
import path from "node:path";
import { DOMParser } from "@xmldom/xmldom";
import fc from "fast-check";
import { afterEach, beforeEach, describe, expect, it, type MockInstance, vi } from "vitest";
import { SignedXml } from "xml-crypto";
import { encrypt } from "xml-encryption";
import { parseIdpMetadata } from "../../../shared/sso/saml/idp-metadata.ts";
import { SamlRefused } from "../../../shared/sso/saml/saml-refused.ts";
import { checkXmlLimits, type XmlCounts } from "../../../shared/sso/saml/xml-limits.ts";
import { HOSTILE_XML } from "./hostile-xml.ts";
import { Signer, verificationResult } from "./signing.ts";

// Tests of the limits on XML documents (levels, elements, attributes, size), which are checked before a document is parsed.

const idp = new Signer();
afterEach(() => {
  vi.restoreAllMocks();
});

describe("A hostile document", () => {
  let parseFromString: MockInstance<DOMParser["parseFromString"]>;
  beforeEach(() => {
    parseFromString = vi.spyOn(DOMParser.prototype, "parseFromString");
  });

  it.each(Object.entries(HOSTILE_XML))("is rejected before it is parsed: %s", async (_name, { xml, reason }) => {
    expect(await verificationResult(xml, idp.expected())).toBe(reason);
    expect(() => parseIdpMetadata(xml)).toThrow("body.samlIdpMetadataXml: must be");
    expect(parseFromString).not.toHaveBeenCalled();
  });

  it.each(Object.entries(HOSTILE_XML))("costs a few looks at each of its characters: %s", (_name, { xml }) => {
    const characters = countedCharacters(() => expect(() => checkXmlLimits(xml)).toThrow(SamlRefused));
    // 200 more, because expressions that look at the beginning only are counted for short documents too.
    expect(characters).toBeLessThanOrEqual(MAX_LOOKS * xml.length + 200);
  });

  it("is one of at least 40, of which at least ten are almost as large as the limit of 256 KiB", () => {
    const sizes = Object.values(HOSTILE_XML).map(({ xml }) => xml.length);
    expect(sizes.length).toBeGreaterThanOrEqual(40);
    expect(sizes.filter((size) => size > 240 * 1024).length).toBeGreaterThanOrEqual(10);
  });

  it("is rejected before it is parsed if it was encrypted for the service", async () => {
    const decryptionKey = readFileSync(path.join(import.meta.dirname, "../../fixtures/saml/service.key"), "utf8");
    const { xml } = HOSTILE_XML["another prefix on each of 4,900 levels"]!;
    const encrypted = `<saml:EncryptedAssertion>${await encryptedFor(decryptionKey, xml)}</saml:EncryptedAssertion>`;
    const response = (await idp.respond()).replace(/<saml:Assertion.*<\/saml:Assertion>/s, () => encrypted);
    parseFromString.mockClear();
    expect(await verificationResult(response, idp.expected({ decryptionKey }))).toBe("malformed");
    expect(parseFromString).toHaveBeenCalled();
    expect(parseFromString.mock.calls.filter(([text]) => text === xml)).toEqual([]);
  });

  it("differs from an ordinary response, which is parsed", async () => {
    expect(await verificationResult(await idp.respond(), idp.expected())).toBeTypeOf("object");
    expect(parseFromString).toHaveBeenCalled();
  });
});

describe("A document at the limit is accepted, and beyond the limit rejected:", () => {
  const repeat = (count: number, piece: (index: number) => string) =>
    Array.from({ length: count }, (_, index) => piece(index)).join("");
  // Each function returns a document that exceeds the limit by the given number, or is at the limit for 0.
  it.each<[string, (excess: number) => string]>([
    ["50 levels", (excess) => "<a>".repeat(50 + excess) + "</a>".repeat(50 + excess)],
    ["5,000 elements and attributes", (excess) => `<a>${'<b c=""/>'.repeat(2_499)}<b/>${"<b/>".repeat(excess)}</a>`],
    ["100 attributes of an element", (excess) => `<a ${repeat(100 + excess, (index) => ` a${index}=""`)}/>`],
    [
      "64 namespaces on the way to an element",
      (excess) =>
        `<a ${repeat(60, (index) => ` xmlns:a${index}="u"`)}><b ${repeat(4 + excess, (index) => ` xmlns:b${index}="u"`)}/></a>`,
    ],
    [
      "100 comments and CDATA sections",
      (excess) => `<a>${"<!---->".repeat(99)}<![CDATA[]]></a>${"<!---->".repeat(excess)}`,
    ],
    ["8 KiB of an attribute", (excess) => `<a b="${"x".repeat(8 * 1024 + excess)}"/>`],
    ["256 KiB", (excess) => `<a>${"é".repeat(128 * 1024 - 4)}x${"y".repeat(excess)}</a>`],
  ])("%s", (_limit, document) => {
    expect(checkXmlLimits(document(0)).elements).toBeGreaterThan(0);
    expect(() => checkXmlLimits(document(1))).toThrow(SamlRefused);
  });

  it("namespaces are counted per path, not per document", () => {
    expect(checkXmlLimits(`<a>${'<b xmlns:x="u" xmlns:y="u"/>'.repeat(1_000)}</a>`)).toMatchObject({
      attributes: 2_000,
    });
  });
});

/** How often the check may look at each character when it searches, cuts out and compares texts, however long the document is. */
const MAX_LOOKS = 8;

/**
 * Returns the number of characters that the built-in functions look at while `work` runs. `checkXmlLimits` uses a Set for single
 * characters, and the functions of strings and regular expressions for texts.
 */
function countedCharacters(work: () => void): number {
  let characters = 0;
  const restore: (() => void)[] = [];
  const count = <T extends object>(
    owner: T,
    name: keyof T,
    looks: (self: never, args: never[], result: never) => number,
  ) => {
    const original = owner[name] as (...args: never[]) => never;
    owner[name] = function (this: never, ...args: never[]) {
      const result = Reflect.apply(original, this, args) as never;
      characters += looks(this, args, result);
      return result;
    } as T[keyof T];
    restore.push(() => {
      owner[name] = original as T[keyof T];
    });
  };
  count(Set.prototype, "has", () => 1);
  count(String.prototype, "slice", (_self, _args, result: string) => result.length);
  count(String.prototype, "startsWith", (_self, [text]: string[]) => text!.length);
  count(String.prototype, "includes", (self: string) => self.length);
  count(String.prototype, "indexOf", (self: string, args, result: number) => {
    const [text, from = 0] = args as unknown as [string, number?];
    return result < 0 ? self.length - from : result + text.length - from;
  });
  count(Array, "from", (_self, [text]: string[]) => text!.length);
  // Anchored and sticky expressions look at the beginning only: the declaration's has the most characters, about 130.
  count(RegExp.prototype, "exec", ({ sticky, source }: RegExp, [text]: string[]) =>
    sticky || source.startsWith("^") ? Math.min(text!.length, 10) : text!.length,
  );
  try {
    work();
  } finally {
    for (const undo of restore) undo();
  }
  return characters;
}

/** Returns content as the `EncryptedData` element for the holder of a key. */
function encryptedFor(privateKey: string, content: string): Promise<string> {
  const options = {
    rsa_pub: createPublicKey(privateKey).export({ type: "spki", format: "pem" }).toString(),
    pem: readFileSync(path.join(import.meta.dirname, "../../fixtures/saml/idp.crt"), "utf8"),
    encryptionAlgorithm: "http://www.w3.org/2009/xmlenc11#aes256-gcm" as const,
    keyEncryptionAlgorithm: "http://www.w3.org/2001/04/xmlenc#rsa-oaep-mgf1p" as const,
  };
  return new Promise((resolve, reject) => {
    encrypt(content, options, (error, result) => (error ? reject(error) : resolve(result)));
  });
}

/** Counts the nodes of a document with the parser xmldom. Undefined if xmldom reports an error or a warning. */
function countWithParser(xml: string): XmlCounts | undefined {
  const throwError = () => {
    throw new Error("rejected");
  };
  let document: Document;
  try {
    const errorHandler = { warning: throwError, error: throwError, fatalError: throwError };
    document = new DOMParser({ errorHandler }).parseFromString(xml, "text/xml");
  } catch {
    return undefined;
  }
  const counts: XmlCounts = { depth: 0, elements: 0, attributes: 0, others: 0 };
  // Node types of the DOM: 1 is an element, 4 a CDATA section, 8 a comment.
  const count = (node: Node, depth: number): void => {
    if (node.nodeType === 1) {
      counts.elements += 1;
      counts.attributes += (node as Element).attributes.length;
      counts.depth = Math.max(counts.depth, depth);
    } else if (node.nodeType === 4 || node.nodeType === 8) counts.others += 1;
    for (let child = node.firstChild; child; child = child.nextSibling) count(child, depth + 1);
  };
  for (const node of Array.from(document.childNodes)) count(node, 1);
  return counts;
}

// Generators of random documents (fast-check).
const name = fc.constantFrom("a", "b", "Assertion", "é", "_1", "a-b.c", "n:a");
const space = fc.constantFrom("", " ", "\n", "\t ", "\r\n");
const text = fc
  .array(
    fc.constantFrom("x", ">", "'", '"', "]", "&lt;", "&amp;", "&#x61;", "&#10;", " ", "\n", "=", "/", "日", "😀"),
    {
      maxLength: 6,
    },
  )
  .map((parts) => parts.join(""));
const attribute = fc
  .tuple(name, space, space, text, fc.constantFrom('"', "'"))
  .map(([key, before, after, value, quote]) => ({
    key,
    text: `${key}${before}=${after}${quote}${value.replaceAll(quote, "")}${quote}`,
  }));
const comment = text.map((inside) => `<!--${inside}-->`);
const cdata = text.map((inside) => `<![CDATA[${inside}<a>&b;]]>`);
const { element } = fc.letrec<{ element: string; content: string }>((tie) => ({
  content: fc
    .array(
      fc.oneof(
        { depthSize: "small", withCrossShrink: true },
        text,
        comment,
        cdata,
        fc.constant("<?x?>"),
        tie("element"),
        tie("element"),
      ),
      { maxLength: 5 },
    )
    .map((parts) => parts.join("")),
  element: fc
    .tuple(
      name,
      fc.uniqueArray(attribute, { selector: ({ key }) => key, maxLength: 4 }),
      space,
      tie("content"),
      fc.nat(3),
    )
    .map(([tag, attributes, end, content, form]) => {
      const prefix = form === 0 ? "" : ' xmlns:n="urn:n"';
      const start = `<${tag}${prefix}${attributes.map((each) => ` ${each.text}`).join("")}${end}`;
      return content === "" && form > 1 ? `${start}/>` : `${start}>${content}</${tag}${end}>`;
    }),
}));
const outsideRoot = fc
  .array(fc.oneof(comment, fc.constantFrom(" ", "\n")), { maxLength: 2 })
  .map((parts) => parts.join(""));
const document = fc
  .tuple(
    fc.constantFrom("", '<?xml version="1.0"?>', "<?xml version='1.0' encoding='UTF-8'?>\n"),
    outsideRoot,
    element,
    outsideRoot,
  )
  .map((parts) => parts.join(""));
/** Removes a piece of a document, or inserts one. */
const edit = fc.record({
  at: fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true }),
  removed: fc.nat(3),
  added: fc.constantFrom(
    "",
    "<",
    ">",
    '"',
    "'",
    "/",
    "&",
    "<!",
    "<?",
    "-->",
    "]]>",
    "<!--",
    "<a>",
    "</a>",
    " ",
    "=",
    "!",
    "\u0000",
  ),
});

describe("For a random document", () => {
  it("the counts equal the parser's counts if the document is accepted", () => {
    const documents = { accepted: 0, rejected: 0, rejectedByParser: 0 };
    fc.assert(
      fc.property(document, fc.array(edit, { maxLength: 2 }), (validDocument, edits) => {
        const xml = edits.reduce((text, { at, removed, added }) => {
          const start = Math.floor(at * text.length);
          return text.slice(0, start) + added + text.slice(start + removed);
        }, validDocument);
        let counts: XmlCounts | undefined;
        try {
          counts = checkXmlLimits(xml);
        } catch (error) {
          expect(error).toBeInstanceOf(SamlRefused);
        }
        const parserCounts = countWithParser(xml);
        if (counts === undefined) documents.rejected += 1;
        else if (parserCounts === undefined) documents.rejectedByParser += 1;
        else {
          documents.accepted += 1;
          expect(counts).toEqual(parserCounts);
        }
        // An unchanged document without a processing instruction must be accepted if the parser accepts it.
        if (edits.length === 0 && parserCounts && !xml.includes("<?x?>")) expect(counts).toEqual(parserCounts);
      }),
      { numRuns: 2_000 },
    );
    expect(documents.accepted).toBeGreaterThan(100);
    expect(documents.rejected).toBeGreaterThan(100);
  });
});

describe("A foreign signature", () => {
  it("is rejected before the document is hashed", async () => {
    const checkSignature = vi.spyOn(SignedXml.prototype, "checkSignature");
    expect(await verificationResult(await idp.respond({ foreignKey: true }), idp.expected())).toBe("signature");
    expect(checkSignature).not.toHaveBeenCalled();
    expect(await verificationResult(await idp.respond(), idp.expected())).toBeTypeOf("object");
    expect(checkSignature).toHaveBeenCalledOnce();
  });

  it("is rejected before it is loaded if it has too many elements or prefixes", async () => {
    const loadSignature = vi.spyOn(SignedXml.prototype, "loadSignature");
    const xml = await idp.respond();
    const withPieceInSignature = (piece: string) => xml.replace("</ds:SignedInfo>", `${piece}</ds:SignedInfo>`);
    expect(await verificationResult(withPieceInSignature("<a/>".repeat(50)), idp.expected())).toBe("signature");
    expect(await verificationResult(withPieceInSignature(`<a PrefixList="${"p ".repeat(64)}"/>`), idp.expected())).toBe(
      "signature",
    );
    expect(await verificationResult(withPieceInSignature("<ds:SignedInfo/>"), idp.expected())).toBe("signature");
    expect(loadSignature).not.toHaveBeenCalled();
  });
});
