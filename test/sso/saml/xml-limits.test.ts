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
import { outcome, Signer } from "./signing.ts";

const idp = new Signer();
afterEach(() => {
  vi.restoreAllMocks();
});

describe("A document that takes a parser too long", () => {
  let parsed: MockInstance<DOMParser["parseFromString"]>;
  beforeEach(() => {
    parsed = vi.spyOn(DOMParser.prototype, "parseFromString");
  });

  it.each(Object.entries(HOSTILE_XML))("is rejected before it is parsed: %s", async (_name, { xml, reason }) => {
    expect(await outcome(xml, idp.expected())).toBe(reason);
    expect(() => parseIdpMetadata(xml)).toThrow("body.samlIdpMetadataXml: must be");
    expect(parsed).not.toHaveBeenCalled();
  });

  it("is rejected before it is parsed when it was encrypted for the service", async () => {
    const decryptionKey = readFileSync(path.join(import.meta.dirname, "../../fixtures/saml/service.key"), "utf8");
    const { xml } = HOSTILE_XML["another prefix on each of 4,900 levels"]!;
    const encrypted = `<saml:EncryptedAssertion>${await encryptedFor(decryptionKey, xml)}</saml:EncryptedAssertion>`;
    const response = (await idp.respond()).replace(/<saml:Assertion.*<\/saml:Assertion>/s, () => encrypted);
    parsed.mockClear();
    expect(await outcome(response, idp.expected({ decryptionKey }))).toBe("malformed");
    expect(parsed).toHaveBeenCalled();
    expect(parsed.mock.calls.filter(([text]) => text === xml)).toEqual([]);
  });

  it("differs from an ordinary response, which is parsed", async () => {
    expect(await outcome(await idp.respond(), idp.expected())).toBeTypeOf("object");
    expect(parsed).toHaveBeenCalled();
  });
});

describe("A document at a limit is accepted, and one beyond it is rejected:", () => {
  const each = (count: number, one: (at: number) => string) =>
    Array.from({ length: count }, (_, at) => one(at)).join("");
  it.each<[string, (more: number) => string]>([
    ["50 levels", (more) => "<a>".repeat(50 + more) + "</a>".repeat(50 + more)],
    ["5,000 elements and attributes", (more) => `<a>${'<b c=""/>'.repeat(2_499)}<b/>${"<b/>".repeat(more)}</a>`],
    ["100 attributes of an element", (more) => `<a ${each(100 + more, (at) => ` a${at}=""`)}/>`],
    [
      "64 namespaces on the way to an element",
      (more) => `<a ${each(60, (at) => ` xmlns:a${at}="u"`)}><b ${each(4 + more, (at) => ` xmlns:b${at}="u"`)}/></a>`,
    ],
    [
      "100 comments and CDATA sections",
      (more) => `<a>${"<!---->".repeat(99)}<![CDATA[]]></a>${"<!---->".repeat(more)}`,
    ],
    ["8 KiB of an attribute", (more) => `<a b="${"x".repeat(8 * 1024 + more)}"/>`],
    ["256 KiB", (more) => `<a>${"é".repeat(128 * 1024 - 4)}x${"y".repeat(more)}</a>`],
  ])("%s", (_what, document) => {
    expect(checkXmlLimits(document(0)).elements).toBeGreaterThan(0);
    expect(() => checkXmlLimits(document(1))).toThrow(SamlRefused);
  });

  it("namespaces of neighbors do not add up", () => {
    expect(checkXmlLimits(`<a>${'<b xmlns:x="u" xmlns:y="u"/>'.repeat(1_000)}</a>`)).toMatchObject({
      attributes: 2_000,
    });
  });
});

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

/** Parses a document with xmldom. Undefined if xmldom does not accept it unchanged. */
function parsedMeasure(xml: string): XmlCounts | undefined {
  const refuse = () => {
    throw new Error("refused");
  };
  let document: Document;
  try {
    const errorHandler = { warning: refuse, error: refuse, fatalError: refuse };
    document = new DOMParser({ errorHandler }).parseFromString(xml, "text/xml");
  } catch {
    return undefined;
  }
  const found: XmlCounts = { depth: 0, elements: 0, attributes: 0, others: 0 };
  const count = (node: Node, depth: number): void => {
    if (node.nodeType === 1) {
      found.elements += 1;
      found.attributes += (node as Element).attributes.length;
      found.depth = Math.max(found.depth, depth);
    } else if (node.nodeType === 4 || node.nodeType === 8) found.others += 1;
    for (let child = node.firstChild; child; child = child.nextSibling) count(child, depth + 1);
  };
  for (const node of Array.from(document.childNodes)) count(node, 1);
  return found;
}

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
      const start = `<${tag}${prefix}${attributes.map((one) => ` ${one.text}`).join("")}${end}`;
      return content === "" && form > 1 ? `${start}/>` : `${start}>${content}</${tag}${end}>`;
    }),
}));
const around = fc.array(fc.oneof(comment, fc.constantFrom(" ", "\n")), { maxLength: 2 }).map((parts) => parts.join(""));
const document = fc
  .tuple(
    fc.constantFrom("", '<?xml version="1.0"?>', "<?xml version='1.0' encoding='UTF-8'?>\n"),
    around,
    element,
    around,
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
  it("the counts equal the parser's, and nothing is accepted that the parser reads differently", () => {
    const reached = { accepted: 0, refused: 0, refusedByParser: 0 };
    fc.assert(
      fc.property(document, fc.array(edit, { maxLength: 2 }), (whole, edits) => {
        const xml = edits.reduce((text, { at, removed, added }) => {
          const start = Math.floor(at * text.length);
          return text.slice(0, start) + added + text.slice(start + removed);
        }, whole);
        let measured: XmlCounts | undefined;
        try {
          measured = checkXmlLimits(xml);
        } catch (error) {
          expect(error).toBeInstanceOf(SamlRefused);
        }
        const parsed = parsedMeasure(xml);
        if (measured === undefined) reached.refused += 1;
        else if (parsed === undefined) reached.refusedByParser += 1;
        else {
          reached.accepted += 1;
          expect(measured).toEqual(parsed);
        }
        // The scan accepts every unchanged document without a processing instruction that a parser accepts.
        if (edits.length === 0 && parsed && !xml.includes("<?x?>")) expect(measured).toEqual(parsed);
      }),
      { numRuns: 2_000 },
    );
    expect(reached.accepted).toBeGreaterThan(100);
    expect(reached.refused).toBeGreaterThan(100);
  });
});

describe("A foreign signature", () => {
  it("does not cause the document to be hashed, however many elements it has", async () => {
    const checked = vi.spyOn(SignedXml.prototype, "checkSignature");
    expect(await outcome(await idp.respond({ foreignKey: true }), idp.expected())).toBe("signature");
    expect(checked).not.toHaveBeenCalled();
    expect(await outcome(await idp.respond(), idp.expected())).toBeTypeOf("object");
    expect(checked).toHaveBeenCalledOnce();
  });

  it("is rejected when it has more elements or prefixes than signatures have", async () => {
    const loaded = vi.spyOn(SignedXml.prototype, "loadSignature");
    const xml = await idp.respond();
    const inside = (piece: string) => xml.replace("</ds:SignedInfo>", `${piece}</ds:SignedInfo>`);
    expect(await outcome(inside("<a/>".repeat(50)), idp.expected())).toBe("signature");
    expect(await outcome(inside(`<a PrefixList="${"p ".repeat(64)}"/>`), idp.expected())).toBe("signature");
    expect(await outcome(inside("<ds:SignedInfo/>"), idp.expected())).toBe("signature");
    expect(loaded).not.toHaveBeenCalled();
  });
});
