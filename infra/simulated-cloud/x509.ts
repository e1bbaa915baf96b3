import { createHash, createPublicKey, type KeyObject, sign, verify } from "node:crypto";

// Encodes X.509 v3 certificates (RFC 5280) as DER: the server certificates of the cloud and the certificates in its vaults.
// Signatures are PKCS#1 v1.5 or ECDSA, both with SHA-256. With an RSA key, the same request returns the same bytes. Comments
// name sections of RFC 5280.

export interface CertificateRequest {
  /** Distinguished name, such as `CN=login.example.com, O=Acme`. */
  subject: string;
  issuer: string;
  serial: Buffer;
  notBefore: Date;
  notAfter: Date;
  publicKey: KeyObject;
  signingKey: KeyObject;
  /** A certificate authority, which can sign other certificates. */
  authority?: boolean;
  dnsNames?: readonly string[];
  ipAddresses?: readonly string[];
  /** Whether signed certificate timestamps are embedded, as in certificates of public authorities (RFC 6962, section 3.3). */
  timestamps?: boolean;
}

/** Returns the DER of the signed certificate. */
export function makeCertificate(request: CertificateRequest): Buffer {
  const algorithm = signatureAlgorithm(request.signingKey);
  const spki = request.publicKey.export({ type: "spki", format: "der" });
  const toBeSigned = sequence(
    // The number 2 stands for version 3.
    explicit(0, integer(Buffer.from([2]))),
    integer(request.serial),
    algorithm,
    distinguishedName(request.issuer),
    sequence(time(request.notBefore), time(request.notAfter)),
    distinguishedName(request.subject),
    spki,
    explicit(3, sequence(...extensions(request, spki))),
  );
  return sequence(toBeSigned, algorithm, bitString(sign("sha256", toBeSigned, request.signingKey)));
}

/** Returns the DER of a certificate signing request (RFC 2986) for DNS names. */
export function makeSigningRequest(request: {
  subject: string;
  dnsNames: readonly string[];
  publicKey: KeyObject;
  signingKey: KeyObject;
}): Buffer {
  const names = request.dnsNames.map((name) => tlv(0x82, Buffer.from(name, "ascii")));
  const requested = names.length === 0 ? [] : [extension("2.5.29.17", false, sequence(...names))];
  // extensionRequest (RFC 2985, section 5.4.2)
  const attribute = sequence(oid("1.2.840.113549.1.9.14"), tlv(0x31, sequence(...requested)));
  const toBeSigned = sequence(
    integer(Buffer.from([0])),
    distinguishedName(request.subject),
    request.publicKey.export({ type: "spki", format: "der" }),
    tlv(0xa0, requested.length === 0 ? Buffer.alloc(0) : attribute),
  );
  const algorithm = signatureAlgorithm(request.signingKey);
  return sequence(toBeSigned, algorithm, bitString(sign("sha256", toBeSigned, request.signingKey)));
}

/** What a certificate signing request asks for. */
export interface SigningRequest {
  commonName: string | undefined;
  /** DNS names of the extension subjectAltName, in their order. */
  dnsNames: string[];
  publicKey: KeyObject;
}

/** Reads a certificate signing request. Undefined if it is malformed, or not signed by its own key. */
export function readSigningRequest(der: Buffer): SigningRequest | undefined {
  try {
    const [toBeSigned, , signature] = childrenOf(readElement(der, 0));
    const [, subject, spki, attributes] = childrenOf(toBeSigned!);
    const publicKey = createPublicKey({ key: spki!.bytes, format: "der", type: "spki" });
    // The first byte of a bit string is its number of unused bits.
    if (!verify("sha256", toBeSigned!.bytes, publicKey, signature!.content.subarray(1))) return undefined;
    const commonName = childrenOf(subject!)
      .flatMap((set) => childrenOf(set))
      .map((pair) => childrenOf(pair))
      .find(([type]) => type!.bytes.equals(oid(ATTRIBUTES.CN!)))?.[1]
      ?.content.toString("utf8");
    const dnsNames = attributes === undefined ? [] : childrenOf(attributes).flatMap(dnsNamesOfAttribute);
    return { commonName, dnsNames, publicKey };
  } catch {
    return undefined;
  }
}

function dnsNamesOfAttribute(attribute: Element): string[] {
  const [type, values] = childrenOf(attribute);
  if (!type!.bytes.equals(oid("1.2.840.113549.1.9.14"))) return [];
  const extensions = childrenOf(values!).flatMap((list) => childrenOf(list));
  const names = extensions.map((one) => childrenOf(one)).find(([id]) => id!.bytes.equals(oid("2.5.29.17")));
  if (names === undefined) return [];
  return childrenOf(readElement(names.at(-1)!.content, 0))
    .filter(({ tag }) => tag === 0x82)
    .map(({ content }) => content.toString("ascii"));
}

/** One DER value: its tag, its content, and all of its bytes. */
interface Element {
  tag: number;
  content: Buffer;
  bytes: Buffer;
}

function readElement(der: Buffer, start: number): Element {
  const tag = der[start]!;
  let length = der[start + 1]!;
  let offset = start + 2;
  if (length & 0x80) {
    const size = length & 0x7f;
    length = der.readUIntBE(offset, size);
    offset += size;
  }
  if (offset + length > der.length) throw new RangeError("The DER value is truncated");
  return { tag, content: der.subarray(offset, offset + length), bytes: der.subarray(start, offset + length) };
}

function childrenOf({ content }: Element): Element[] {
  const children: Element[] = [];
  for (let start = 0; start < content.length; ) {
    const child = readElement(content, start);
    children.push(child);
    start += child.bytes.length;
  }
  return children;
}

/** Formats DER as PEM. */
export function pem(label: "CERTIFICATE", der: Buffer): string {
  const lines = der.toString("base64").match(/.{1,64}/g) ?? [];
  return `-----BEGIN ${label}-----\n${lines.join("\n")}\n-----END ${label}-----\n`;
}

/** Returns Key Vault's `x5t`: the SHA-1 of the certificate (RFC 7515, section 4.1.7). */
export function thumbprint(der: Buffer): Buffer {
  return createHash("sha1").update(der).digest();
}

function extensions(request: CertificateRequest, spki: Buffer): Buffer[] {
  const authority = request.authority ?? false;
  // Context-specific tags of GeneralName: 2 is dNSName, 7 is iPAddress.
  const alternativeNames = [
    ...(request.dnsNames ?? []).map((name) => tlv(0x82, Buffer.from(name, "ascii"))),
    ...(request.ipAddresses ?? []).map((address) => tlv(0x87, Buffer.from(address.split(".").map(Number)))),
  ];
  const issuerSpki = createPublicKey(request.signingKey).export({ type: "spki", format: "der" });
  // keyCertSign and cRLSign for an authority, otherwise digitalSignature and keyEncipherment (section 4.2.1.3).
  // The first byte of a bit string is its number of unused bits.
  const usage = authority ? Buffer.from([0x01, 0x06]) : Buffer.from([0x05, 0xa0]);
  const list = [
    // basicConstraints
    extension("2.5.29.19", true, sequence(...(authority ? [tlv(0x01, Buffer.from([0xff]))] : []))),
    // keyUsage
    extension("2.5.29.15", true, tlv(0x03, usage)),
    // subjectKeyIdentifier
    extension("2.5.29.14", false, tlv(0x04, keyIdentifier(spki))),
    // authorityKeyIdentifier
    extension("2.5.29.35", false, sequence(tlv(0x80, keyIdentifier(issuerSpki)))),
  ];
  if (!authority) {
    // extKeyUsage: serverAuth and clientAuth
    list.push(extension("2.5.29.37", false, sequence(oid("1.3.6.1.5.5.7.3.1"), oid("1.3.6.1.5.5.7.3.2"))));
  }
  // An SCT list of one entry without a valid signature, which only a verifier of timestamps would read.
  if (request.timestamps) list.push(extension("1.3.6.1.4.1.11129.2.4.2", false, tlv(0x04, Buffer.from([0, 2, 0, 0]))));
  // subjectAltName
  if (alternativeNames.length > 0) list.push(extension("2.5.29.17", false, sequence(...alternativeNames)));
  return list;
}

/** Encodes an extension. A missing `critical` means false; 0xff is true. */
function extension(id: string, critical: boolean, value: Buffer): Buffer {
  return sequence(oid(id), ...(critical ? [tlv(0x01, Buffer.from([0xff]))] : []), tlv(0x04, value));
}

function keyIdentifier(spki: Buffer): Buffer {
  return createHash("sha1").update(spki).digest();
}

function signatureAlgorithm(key: KeyObject): Buffer {
  // ecdsa-with-SHA256 or sha256WithRSAEncryption
  return key.asymmetricKeyType === "ec"
    ? sequence(oid("1.2.840.10045.4.3.2"))
    : sequence(oid("1.2.840.113549.1.1.11"), tlv(0x05, Buffer.alloc(0)));
}

/** Object identifiers of the attributes in a distinguished name. */
const ATTRIBUTES: Record<string, string> = { CN: "2.5.4.3", C: "2.5.4.6", L: "2.5.4.7", O: "2.5.4.10", OU: "2.5.4.11" };

/** Encodes an RFC 4514 name without escapes. The text starts with the most specific part, DER with the most general part. */
function distinguishedName(text: string): Buffer {
  const parts = text.split(/,\s*/).reverse();
  return sequence(
    ...parts.map((part) => {
      const separator = part.indexOf("=");
      const attribute = ATTRIBUTES[part.slice(0, separator).trim().toUpperCase()];
      if (attribute === undefined) throw new Error(`Unknown attribute in the distinguished name "${text}"`);
      return tlv(0x31, sequence(oid(attribute), tlv(0x0c, Buffer.from(part.slice(separator + 1), "utf8"))));
    }),
  );
}

/** Encodes a time: UTCTime until 2049, GeneralizedTime from 2050 (section 4.1.2.5). */
function time(instant: Date): Buffer {
  const digits = `${instant.toISOString().replace(/[-:T]/g, "").slice(0, 14)}Z`;
  return instant.getUTCFullYear() < 2050
    ? tlv(0x17, Buffer.from(digits.slice(2), "ascii"))
    : tlv(0x18, Buffer.from(digits, "ascii"));
}

/**
 * Encodes a DER value: tag, length, content. Tags: 0x01 BOOLEAN, 0x02 INTEGER, 0x03 BIT STRING, 0x04 OCTET STRING, 0x05 NULL,
 * 0x06 OBJECT IDENTIFIER, 0x0c UTF8String, 0x17 UTCTime, 0x18 GeneralizedTime, 0x30 SEQUENCE, 0x31 SET. 0x80 plus a number is
 * that context-specific tag, 0xa0 plus a number a constructed one.
 */
function tlv(tag: number, content: Buffer): Buffer {
  if (content.length < 0x80) return Buffer.concat([Buffer.from([tag, content.length]), content]);
  const length: number[] = [];
  for (let rest = content.length; rest > 0; rest = Math.floor(rest / 256)) length.unshift(rest % 256);
  return Buffer.concat([Buffer.from([tag, 0x80 | length.length, ...length]), content]);
}

const sequence = (...parts: Buffer[]) => tlv(0x30, Buffer.concat(parts));
const explicit = (number: number, content: Buffer) => tlv(0xa0 | number, content);
const bitString = (content: Buffer) => tlv(0x03, Buffer.concat([Buffer.from([0]), content]));

/** Encodes a positive INTEGER: no redundant leading zeros, and one zero if the first bit is set. */
function integer(bytes: Buffer): Buffer {
  let start = 0;
  while (start < bytes.length - 1 && bytes[start] === 0) start++;
  const digits = bytes.subarray(start);
  return tlv(0x02, digits[0]! & 0x80 ? Buffer.concat([Buffer.from([0]), digits]) : digits);
}

/** Encodes an object identifier, such as "2.5.29.19". */
function oid(text: string): Buffer {
  const [first, second, ...rest] = text.split(".").map(Number);
  const bytes = [first! * 40 + second!];
  for (const number of rest) {
    const digits = [number & 0x7f];
    for (let high = number >>> 7; high > 0; high >>>= 7) digits.unshift(0x80 | (high & 0x7f));
    bytes.push(...digits);
  }
  return tlv(0x06, Buffer.from(bytes));
}
