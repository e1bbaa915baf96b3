import { type KeyObject, X509Certificate } from "node:crypto";
import { type BaseBlock, Constructed, fromBER, Integer, ObjectIdentifier, OctetString, Primitive } from "asn1js";
import { DAY_MS, LATEST_TIME, SECOND_MS } from "../time.ts";
import { type CallTarget, malformedAnswer } from "./failure.ts";

/** Properties of an X.509 certificate. */
export interface X509Facts {
  /** Distinguished names, such as `CN=www.example.com, O=Example`. */
  subject: string;
  issuer: string;
  /** Values only: `www.example.com`, `10.0.0.1`, `ops@example.com`. */
  subjectAlternativeNames: string[];
  /**
   * Serial number: the content bytes of its DER in lower-case hexadecimal, with a leading zero byte where DER has one. RFC 9773,
   * section 4.1 identifies a certificate by these bytes.
   */
  serialNumber: string;
  /** Key identifier of the authority (RFC 5280, section 4.2.1.1), lower-case hexadecimal. Absent if there is none. */
  authorityKeyId?: string;
  /**
   * Whether signed certificate timestamps are embedded (RFC 6962, section 3.3). Browsers require them, so publicly trusted
   * authorities embed them.
   */
  hasTimestamps: boolean;
  /** Object identifier of the algorithm with which the authority signed, such as `1.2.840.113549.1.1.11`. Absent if unreadable. */
  signatureAlgorithm?: string;
  /** First and last second of the validity, in Unix seconds. Absent if a date can't be read. */
  notBefore?: number;
  notAfter?: number;
  /** Absent if a date can't be read. */
  validityMonths?: number;
}

interface KeyFacts {
  keyType?: string;
  /** Key size in bits, for RSA keys. */
  keySize?: number;
}

/**
 * Reads the properties of an X.509 certificate.
 *
 * @param key - Whether to read the properties of the key, which takes most of the time.
 * @throws {CloudFailure} badResponse if the bytes are not an X.509 certificate in DER, or its key can't be read.
 */
export function readX509(der: Uint8Array, target: CallTarget, key: boolean): X509Facts & KeyFacts {
  try {
    const certificate = new X509Certificate(der);
    return {
      subject: oneLine(certificate.subject),
      issuer: oneLine(certificate.issuer),
      subjectAlternativeNames: alternativeNames(certificate.subjectAltName),
      ...readValidity(certificate),
      ...readStructure(der),
      ...(key ? publicKeyFacts(certificate.publicKey) : {}),
    };
  } catch {
    throw malformedAnswer(target, "the certificate is not valid X.509");
  }
}

/** Returns nothing if a date is invalid or before 1970. For an invalid one, Node returns a date after the year 200000. */
function readValidity({
  validFromDate,
  validToDate,
}: X509Certificate): Pick<X509Facts, "notBefore" | "notAfter" | "validityMonths"> {
  const secondsOf = (date: Date) => Math.floor(date.getTime() / SECOND_MS);
  const isTime = (seconds: number) => seconds >= 0 && seconds <= LATEST_TIME;
  const [notBefore, notAfter] = [secondsOf(validFromDate), secondsOf(validToDate)];
  if (!isTime(notBefore) || !isTime(notAfter)) return {};
  return { notBefore, notAfter, validityMonths: months(validFromDate, validToDate) };
}

/** Object identifiers of extensions. */
const AUTHORITY_KEY_IDENTIFIER = "2.5.29.35";
const EMBEDDED_TIMESTAMPS = "1.3.6.1.4.1.11129.2.4.2";

/** Tag class of tags whose meaning depends on their place, such as `[3]` of the extensions. */
const CONTEXT_SPECIFIC = 3;

/**
 * Reads the parts of a certificate that Node does not return.
 *
 * @throws {Error} if the bytes are not a certificate in DER.
 */
function readStructure(
  der: Uint8Array,
): Pick<X509Facts, "serialNumber" | "authorityKeyId" | "hasTimestamps" | "signatureAlgorithm"> {
  const [toBeSigned, signature] = childrenOf(fromBER(der).result);
  const [signatureAlgorithm] = childrenOf(signature);
  const members = childrenOf(toBeSigned);
  const serial = members.find((member) => member instanceof Integer);
  if (!serial) throw new Error("The certificate has no serial number.");
  const [extensions] = childrenOf(members.find((member) => hasContextTag(member, 3)));
  const contents = new Map(
    childrenOf(extensions).map((extension) => {
      const [id, ...rest] = childrenOf(extension);
      // The value is last, after the optional `critical`.
      const value = rest.at(-1);
      return [
        id instanceof ObjectIdentifier ? id.valueBlock.toString() : "",
        value instanceof OctetString ? value.valueBlock.valueHexView : undefined,
      ] as const;
    }),
  );
  const authority = contents.get(AUTHORITY_KEY_IDENTIFIER);
  const keyId = authority && childrenOf(fromBER(authority).result).find((member) => hasContextTag(member, 0));
  return {
    serialNumber: hexText(serial.valueBlock.valueHexView),
    ...(keyId instanceof Primitive && { authorityKeyId: hexText(keyId.valueBlock.valueHexView) }),
    hasTimestamps: contents.has(EMBEDDED_TIMESTAMPS),
    ...(signatureAlgorithm instanceof ObjectIdentifier && {
      signatureAlgorithm: signatureAlgorithm.valueBlock.toString(),
    }),
  };
}

const childrenOf = (block: BaseBlock | undefined): BaseBlock[] =>
  block instanceof Constructed ? block.valueBlock.value : [];
const hasContextTag = ({ idBlock }: BaseBlock, tag: number): boolean =>
  idBlock.tagClass === CONTEXT_SPECIFIC && idBlock.tagNumber === tag;
const hexText = (bytes: Uint8Array): string => Buffer.from(bytes).toString("hex");

const oneLine = (name: string | undefined) => (name ?? "").split("\n").join(", ");

/** Splits a text of Node such as `DNS:a.example, IP Address:10.0.0.1`. A value with a comma or quote is a JSON string there. */
function alternativeNames(text: string | undefined): string[] {
  const names = (text ?? "").matchAll(/(?:^|, )[\w ]+:("(?:[^"\\]|\\.)*"|[^,]*)/g);
  return [...names].map(([, value = ""]) => (value.startsWith('"') ? String(JSON.parse(value)) : value));
}

function months(from: Date, to: Date): number {
  const averageMonthMs = (365.2425 / 12) * DAY_MS;
  return Math.max(1, Math.round((to.getTime() - from.getTime()) / averageMonthMs));
}

/** `toLegacyObject` is not used, because it ends the process with a segmentation fault for P-256K (Node 24.21). */
function publicKeyFacts({ asymmetricKeyType: type, asymmetricKeyDetails: details }: KeyObject): KeyFacts {
  if (type === "ec") return { keyType: "EC" };
  if (type !== "rsa" && type !== "rsa-pss") return {};
  return { keyType: "RSA", ...(details?.modulusLength === undefined ? {} : { keySize: details.modulusLength }) };
}
