import { decrypt } from "xml-encryption";
import { SamlRefused } from "./saml-refused.ts";
import { attribute, child, children, descendantsNamed, parseXml } from "./xml.ts";

/**
 * Accepted algorithms of the content. Entra encrypts with AES in CBC mode, which does not protect against changes. So the
 * service trusts only a signature inside the encrypted content: https://www.w3.org/TR/xmlenc-core1/#sec-edata-attacks
 */
const CONTENT_ALGORITHMS = [
  "http://www.w3.org/2001/04/xmlenc#aes128-cbc",
  "http://www.w3.org/2001/04/xmlenc#aes256-cbc",
  "http://www.w3.org/2009/xmlenc11#aes128-gcm",
  "http://www.w3.org/2009/xmlenc11#aes256-gcm",
];
/** Accepted algorithms of the encrypted key, OAEP only: https://www.w3.org/TR/xmlenc-core1/#rsav15note */
const KEY_ALGORITHMS = ["http://www.w3.org/2001/04/xmlenc#rsa-oaep-mgf1p", "http://www.w3.org/2009/xmlenc11#rsa-oaep"];

/**
 * Decrypts an assertion. Returns its XML and root.
 *
 * @param key - The service's private key, PEM.
 * @throws {SamlRefused} algorithm, encrypted, malformed, documentType
 */
export async function decryptAssertion(encrypted: Element, key: string): Promise<{ xml: string; root: Element }> {
  const data = child(encrypted, "encryption", "EncryptedData");
  const [encryptedKey, ...otherKeys] = descendantsNamed(encrypted, "EncryptedKey");
  if (!data || !encryptedKey || otherKeys.length > 0) throw new SamlRefused("encrypted");
  if (!CONTENT_ALGORITHMS.includes(algorithmOf(data)) || !KEY_ALGORITHMS.includes(algorithmOf(encryptedKey)))
    throw new SamlRefused("algorithm");
  const xml = await new Promise<string>((resolve, reject) => {
    // The algorithms were checked above. By default the library rejects CBC and logs a warning.
    const options = { key, disallowDecryptionWithInsecureAlgorithm: false, warnInsecureAlgorithm: false };
    decrypt(encrypted.toString(), options, (error, result) => {
      if (error) reject(new SamlRefused("encrypted"));
      else resolve(result);
    });
  });
  return { xml, root: parseXml(xml) };
}

const algorithmOf = (element: Element): string => {
  const [method] = children(element, "encryption", "EncryptionMethod");
  return (method && attribute(method, "Algorithm")) ?? "";
};
