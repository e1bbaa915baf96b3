import type { SamlReason } from "../../../shared/sso/saml/saml-refused.ts";

/** Size of the documents in characters, slightly below the limit. */
const FULL = 250 * 1024;

const RESPONSE =
  '<samlp:Response xmlns:samlp="urn:oasis:names:tc:SAML:2.0:protocol" xmlns:saml="urn:oasis:names:tc:SAML:2.0:assertion"';
const around = (inside: string, attributes = "") => `${RESPONSE}${attributes}>${inside}</samlp:Response>`;
const filledWith = (text: string) => text.repeat(Math.floor((FULL - around("").length) / text.length));
const each = (count: number, one: (at: number) => string) => Array.from({ length: count }, (_, at) => one(at)).join("");
const nested = (levels: number, start: (level: number) => string) => each(levels, start) + "</a>".repeat(levels);

/**
 * Documents that take XML parsers and libraries seconds, or that two parsers read differently. Each is rejected with its reason
 * before it is parsed.
 */
export const HOSTILE_XML: Record<string, { xml: string; reason: SamlReason }> = {
  "another prefix on each of 4,900 levels": malformed(nested(4_900, (level) => `<a xmlns:n${level}="u">`)),
  "another prefix on each of 10,500 levels": malformed(nested(10_500, (level) => `<a xmlns:n${level}="u">`)),
  "30,000 levels": malformed(nested(30_000, () => "<a>")),
  "51 levels": malformed(nested(51, () => "<a>")),
  "65 prefixes on few levels": malformed(nested(13, (level) => `<a${each(5, (at) => ` xmlns:n${level}-${at}="u"`)}>`)),
  "nothing but <!": malformed(filledWith("<!")),
  "<! in an element": malformed(around(filledWith("<!"))),
  "<! closed in an element": malformed(around(filledWith("<!x>"))),
  "nothing but <?": malformed(filledWith("<?")),
  "a processing instruction": malformed(around("<?x y?>")),
  "a processing instruction before the root": malformed(`<?x y?>${around("")}`),
  "a processing instruction behind the root": malformed(`${around("")}<?x y?>`),
  "a document type": { xml: `<!DOCTYPE a>${around("")}`, reason: "documentType" },
  "a document type in small letters": { xml: `<!doctype a>${around("")}`, reason: "documentType" },
  "a document type in an element": { xml: around("<!DOCTYPE a>"), reason: "documentType" },
  "an entity": { xml: around('<!ENTITY a "b">'), reason: "documentType" },
  "a reference to an entity": malformed(around("&who;")),
  "a reference that is not closed": malformed(around(filledWith("&"))),
  "a reference to no character of XML": malformed(around("&#0;")),
  "text before the root": malformed(`x${around("")}`),
  "text behind the root": malformed(`${around("")}x`),
  "a CDATA section behind the root": malformed(`${around("")}<![CDATA[]]>`),
  "two roots": malformed(around("") + around("")),
  "no root": malformed("<!-- -->"),
  "an attribute of 250 KB": malformed(around("", ` x="${filledWith("a")}"`)),
  "101 attributes of an element": malformed(around(`<a ${each(101, (at) => ` a${at}=""`)}/>`)),
  "20,000 attributes of an element": malformed(around(`<a ${each(20_000, (at) => ` a${at}=""`)}/>`)),
  "elements that xmldom reads as HTML": malformed(
    `<r xmlns="http://www.w3.org/1999/xhtml">${"&amp;".repeat(10_000)}${"<textarea></textarea >".repeat(4_000)}</r>`,
  ),
  "a script in any namespace": malformed(around('<script xmlns="u"/>')),
  "257 different names of elements": malformed(around(each(256, (at) => `<a${at}/>`))),
  "5,001 elements": malformed(around("<a/>".repeat(5_000))),
  "36,000 comments": malformed(around(filledWith("<!---->"))),
  "21,000 CDATA sections": malformed(around(filledWith("<![CDATA[]]>"))),
  "a tag of spaces": malformed(`<a${filledWith(" ")}`),
  "an end tag of spaces": malformed(`<a></a${filledWith(" ")}x>`),
  "an XML declaration of spaces": malformed(`<?xml a${filledWith(" ")}b?>${RESPONSE}/>`),
  "a line of 200,000 characters and U+2029": malformed(around(`${"a".repeat(200_000)}\u2029`)),
  "a reference to U+2029": malformed(around(`${"a".repeat(200_000)}&#x2029;`)),
  "more than 256 KiB": malformed(around("é".repeat(130 * 1024))),
  "tags that cross": malformed(around("<a><b></a></b>")),
  "an end tag too many": malformed(`${around("")}</a>`),
  "an element that stays open": malformed(RESPONSE.concat(">")),
  "attributes without a space between them": malformed(around('<a b=""c=""/>')),
  "an attribute without quotes": malformed(around("<a b=c/>")),
  "< in an attribute": malformed(around('<a b="<"/>')),
};

function malformed(xml: string): { xml: string; reason: SamlReason } {
  return { xml, reason: "malformed" };
}
