import { DOMParser } from "@xmldom/xmldom";
import { type SamlReason, SamlRefused } from "./saml-refused.ts";
import { checkXmlLimits } from "./xml-limits.ts";

// Parses SAML documents and reads elements and attributes from them.

export const NAMESPACES = {
  protocol: "urn:oasis:names:tc:SAML:2.0:protocol",
  assertion: "urn:oasis:names:tc:SAML:2.0:assertion",
  metadata: "urn:oasis:names:tc:SAML:2.0:metadata",
  signature: "http://www.w3.org/2000/09/xmldsig#",
  encryption: "http://www.w3.org/2001/04/xmlenc#",
} as const;
type Namespace = keyof typeof NAMESPACES;

// Values of `nodeType` in the DOM.
const ELEMENT = 1;
const TEXT = 3;
const CDATA = 4;

/**
 * Parses a document that `checkXmlLimits` accepts. Throws for each defect that the parser would repair or warn about, because
 * parsers repair differently.
 *
 * @returns The root.
 * @throws {SamlRefused} malformed, documentType
 */
export function parseXml(xml: string): Element {
  checkXmlLimits(xml);
  const rejectDocument = () => {
    throw new SamlRefused("malformed");
  };
  let root: Element | null;
  try {
    const errorHandler = { warning: rejectDocument, error: rejectDocument, fatalError: rejectDocument };
    root = new DOMParser({ errorHandler }).parseFromString(xml, "text/xml")?.documentElement ?? null;
  } catch {
    throw new SamlRefused("malformed");
  }
  if (root === null) throw new SamlRefused("malformed");
  return root;
}

/** Returns an element and all its descendants in document order, without recursion. */
export function descendants(root: Element): Element[] {
  const elements: Element[] = [];
  const pending = [root];
  for (let next = pending.pop(); next; next = pending.pop()) {
    elements.push(next);
    pending.push(...elementsOf(next).reverse());
  }
  return elements;
}

function elementsOf(parent: Element): Element[] {
  return Array.from(parent.childNodes).filter((node): node is Element => node.nodeType === ELEMENT);
}

/** Returns all elements with these local names at any depth, in any namespace, because some parsers ignore namespaces. */
export const descendantsNamed = (root: Element, ...localNames: string[]): Element[] =>
  descendants(root).filter(({ localName }) => localNames.includes(localName));

/** Returns true if the element has this local name and namespace. */
export const isElement = (element: Element, namespace: Namespace, localName: string): boolean =>
  element.namespaceURI === NAMESPACES[namespace] && element.localName === localName;

/** Returns the child elements with this name and namespace. */
export const children = (parent: Element, namespace: Namespace, localName: string): Element[] =>
  elementsOf(parent).filter((element) => isElement(element, namespace, localName));

/**
 * Returns the only child with this name and namespace, undefined if there is none.
 *
 * @param reason - Reason of the error.
 * @throws {SamlRefused} if there are several
 */
export function child(
  parent: Element,
  namespace: Namespace,
  localName: string,
  reason: SamlReason = "malformed",
): Element | undefined {
  const [first, ...more] = children(parent, namespace, localName);
  if (more.length > 0) throw new SamlRefused(reason);
  return first;
}

export const parentOf = ({ parentNode }: Element): Element | undefined =>
  parentNode?.nodeType === ELEMENT ? (parentNode as Element) : undefined;

/** Returns all child elements, for callers that must reject unknown ones. */
export const allChildren = elementsOf;

/** Returns an attribute without a namespace. Undefined if it is absent or empty. */
export const attribute = (element: Element, name: string): string | undefined =>
  element.getAttribute(name) || undefined;

/**
 * Returns the trimmed text of an element. Undefined if it is empty or contains anything but text: a comment or element inside
 * would make other parsers read only a part of it.
 */
export function textOf(element: Element | undefined): string | undefined {
  const nodes = Array.from(element?.childNodes ?? []);
  if (nodes.some(({ nodeType }) => nodeType !== TEXT && nodeType !== CDATA)) return undefined;
  return (
    nodes
      .map(({ nodeValue }) => nodeValue ?? "")
      .join("")
      .trim() || undefined
  );
}
