// Parses SAML documents and validates them against the SAML 2.0 schemas.

import { readFileSync } from "node:fs";
import path from "node:path";
import type { XmlElement } from "libxml2-wasm";

/** Namespace prefixes for XPath expressions on SAML documents. */
export const PREFIXES = {
  samlp: "urn:oasis:names:tc:SAML:2.0:protocol",
  saml: "urn:oasis:names:tc:SAML:2.0:assertion",
  md: "urn:oasis:names:tc:SAML:2.0:metadata",
  ds: "http://www.w3.org/2000/09/xmldsig#",
};

const SCHEMAS = {
  protocol: "saml-schema-protocol-2.0.xsd",
  metadata: "saml-schema-metadata-2.0.xsd",
};

/** File names of the schemas by the URLs with which the schemas import each other. */
const IMPORTED_SCHEMAS = {
  "saml-schema-assertion-2.0.xsd": "saml-schema-assertion-2.0.xsd",
  "http://www.w3.org/TR/2002/REC-xmldsig-core-20020212/xmldsig-core-schema.xsd": "xmldsig-core-schema.xsd",
  "http://www.w3.org/TR/2002/REC-xmlenc-core-20021210/xenc-schema.xsd": "xenc-schema.xsd",
  "http://www.w3.org/2001/xml.xsd": "xml.xsd",
};

/** A document that is not XML or violates the SAML 2.0 schema. The message names the element or attribute. */
export class InvalidDocument extends Error {}

/** Loads the parser and the schemas. This takes 100 ms and 20 MB, so it happens only with the first document. */
async function load() {
  const xml = await import("libxml2-wasm");
  const read = (name: string) => readFileSync(path.join(import.meta.dirname, "schemas", name));
  const imported = Object.entries(IMPORTED_SCHEMAS).map(([address, name]) => [address, read(name)]);
  xml.xmlRegisterInputProvider(new xml.XmlBufferInputProvider(Object.fromEntries(imported)));
  const validator = (name: string) => {
    using schema = xml.XmlDocument.fromBuffer(read(name));
    return xml.XsdValidator.fromDoc(schema);
  };
  return {
    ...xml,
    validators: { protocol: validator(SCHEMAS.protocol), metadata: validator(SCHEMAS.metadata) },
  };
}
let loading: ReturnType<typeof load> | undefined;

/**
 * Parses a document with libxml2, validates it against a SAML 2.0 schema and reads it. The service uses another parser, so
 * that tests detect a defect of either parser.
 *
 * @param read - Reads the root element, which is freed afterwards.
 * @throws {InvalidDocument}
 */
export async function readValid<T>(
  schema: keyof typeof SCHEMAS,
  source: string,
  read: (root: XmlElement) => T,
): Promise<T> {
  loading ??= load();
  const { XmlDocument, XmlParseError, XmlValidateError, ParseOption, validators } = await loading;
  try {
    using document = XmlDocument.fromString(source, { option: ParseOption.XML_PARSE_NONET });
    validators[schema].validate(document);
    return read(document.root);
  } catch (error) {
    if (!(error instanceof XmlParseError || error instanceof XmlValidateError)) throw error;
    throw new InvalidDocument(error.message.trim());
  }
}
