import type { SamlReason } from "../../../shared/sso/saml/saml-refused.ts";

/** Size of large documents in characters, slightly below the limit of 256 KiB. */
const LARGE_SIZE = 250 * 1024;

const RESPONSE =
  '<samlp:Response xmlns:samlp="urn:oasis:names:tc:SAML:2.0:protocol" xmlns:saml="urn:oasis:names:tc:SAML:2.0:assertion"';
const inResponse = (inside: string, attributes = "") => `${RESPONSE}${attributes}>${inside}</samlp:Response>`;
const repeatedToLargeSize = (text: string) =>
  text.repeat(Math.floor((LARGE_SIZE - inResponse("").length) / text.length));
/** Concatenates this number of texts. The function gets the index of each. */
const repeat = (count: number, piece: (index: number) => string) =>
  Array.from({ length: count }, (_, index) => piece(index)).join("");
const nestedElements = (levels: number, start: (level: number) => string) =>
  repeat(levels, start) + "</a>".repeat(levels);

/**
 * Documents that take XML parsers and libraries seconds, or that two parsers read differently. Each is rejected with its reason
 * before it is parsed. The number of elements in a title includes the root.
 */
export const HOSTILE_XML: Record<string, { xml: string; reason: SamlReason }> = {
  "another prefix on each of 4,900 levels": malformedDocument(
    nestedElements(4_900, (level) => `<a xmlns:n${level}="u">`),
  ),
  "another prefix on each of 10,500 levels": malformedDocument(
    nestedElements(10_500, (level) => `<a xmlns:n${level}="u">`),
  ),
  "30,000 levels": malformedDocument(nestedElements(30_000, () => "<a>")),
  "51 levels": malformedDocument(nestedElements(51, () => "<a>")),
  "65 prefixes on few levels": malformedDocument(
    nestedElements(13, (level) => `<a${repeat(5, (index) => ` xmlns:n${level}-${index}="u"`)}>`),
  ),
  "nothing but <!": malformedDocument(repeatedToLargeSize("<!")),
  "<! in an element": malformedDocument(inResponse(repeatedToLargeSize("<!"))),
  "<! closed in an element": malformedDocument(inResponse(repeatedToLargeSize("<!x>"))),
  "nothing but <?": malformedDocument(repeatedToLargeSize("<?")),
  "a processing instruction": malformedDocument(inResponse("<?x y?>")),
  "a processing instruction before the root": malformedDocument(`<?x y?>${inResponse("")}`),
  "a processing instruction behind the root": malformedDocument(`${inResponse("")}<?x y?>`),
  "a document type": { xml: `<!DOCTYPE a>${inResponse("")}`, reason: "documentType" },
  "a document type in small letters": { xml: `<!doctype a>${inResponse("")}`, reason: "documentType" },
  "a document type in an element": { xml: inResponse("<!DOCTYPE a>"), reason: "documentType" },
  "an entity": { xml: inResponse('<!ENTITY a "b">'), reason: "documentType" },
  "a reference to an entity": malformedDocument(inResponse("&who;")),
  "a reference that is not closed": malformedDocument(inResponse(repeatedToLargeSize("&"))),
  "a reference to no character of XML": malformedDocument(inResponse("&#0;")),
  "text before the root": malformedDocument(`x${inResponse("")}`),
  "text behind the root": malformedDocument(`${inResponse("")}x`),
  "a CDATA section behind the root": malformedDocument(`${inResponse("")}<![CDATA[]]>`),
  "two roots": malformedDocument(inResponse("") + inResponse("")),
  "no root": malformedDocument("<!-- -->"),
  "an attribute of 250 KB": malformedDocument(inResponse("", ` x="${repeatedToLargeSize("a")}"`)),
  "101 attributes of an element": malformedDocument(inResponse(`<a ${repeat(101, (index) => ` a${index}=""`)}/>`)),
  "20,000 attributes of an element": malformedDocument(
    inResponse(`<a ${repeat(20_000, (index) => ` a${index}=""`)}/>`),
  ),
  "elements that xmldom reads as HTML": malformedDocument(
    `<r xmlns="http://www.w3.org/1999/xhtml">${"&amp;".repeat(10_000)}${"<textarea></textarea >".repeat(4_000)}</r>`,
  ),
  "a script in any namespace": malformedDocument(inResponse('<script xmlns="u"/>')),
  "257 different names of elements": malformedDocument(inResponse(repeat(256, (index) => `<a${index}/>`))),
  "5,001 elements": malformedDocument(inResponse("<a/>".repeat(5_000))),
  "36,000 comments": malformedDocument(inResponse(repeatedToLargeSize("<!---->"))),
  "21,000 CDATA sections": malformedDocument(inResponse(repeatedToLargeSize("<![CDATA[]]>"))),
  "a tag of spaces": malformedDocument(`<a${repeatedToLargeSize(" ")}`),
  "an end tag of spaces": malformedDocument(`<a></a${repeatedToLargeSize(" ")}x>`),
  "an XML declaration of spaces": malformedDocument(`<?xml a${repeatedToLargeSize(" ")}b?>${RESPONSE}/>`),
  "a line of 200,000 characters and U+2029": malformedDocument(inResponse(`${"a".repeat(200_000)}\u2029`)),
  "a reference to U+2029": malformedDocument(inResponse(`${"a".repeat(200_000)}&#x2029;`)),
  "more than 256 KiB": malformedDocument(inResponse("é".repeat(130 * 1024))),
  "tags that cross": malformedDocument(inResponse("<a><b></a></b>")),
  "an end tag too many": malformedDocument(`${inResponse("")}</a>`),
  "an element that stays open": malformedDocument(RESPONSE.concat(">")),
  "attributes without a space between them": malformedDocument(inResponse('<a b=""c=""/>')),
  "an attribute without quotes": malformedDocument(inResponse("<a b=c/>")),
  "< in an attribute": malformedDocument(inResponse('<a b="<"/>')),
};

function malformedDocument(xml: string): { xml: string; reason: SamlReason } {
  return { xml, reason: "malformed" };
}
