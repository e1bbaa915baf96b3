import { generateKeyPairSync, X509Certificate } from "node:crypto";
import type { SamlModeName } from "simulated-cloud/idp/saml-modes.ts";
import { makeCertificate, pem } from "simulated-cloud/x509.ts";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { encrypt } from "xml-encryption";
import * as z from "zod";
import { systemRandomness } from "../../../shared/platform/runtime.ts";
import { entity } from "../../../shared/platform/storage/entity.ts";
import { DAY_MS, HOUR_MS, MINUTE_MS } from "../../../shared/platform/time.ts";
import type { SsoChange, SsoTest } from "../../../shared/sso/api.ts";
import { CONFIGURATION_KEY, Configuration, SSO, UNCONFIGURED } from "../../../shared/sso/configuration.ts";
import { createSaml } from "../../../shared/sso/saml/saml.ts";
import type { SignInRequest } from "../../../shared/sso/sign-in-requests.ts";
import {
  ADMINISTRATOR,
  authenticateSession,
  complete,
  type Deployment,
  type Instance,
  ORIGIN,
  problemOf,
  startDeployments,
} from "../support.ts";
import { browseBySaml, chooseBySaml, samlSettings, withChangedResponse } from "./browser-sign-in.ts";

// Tests of SAML sign-ins and of the SAML configuration. `browseBySaml` starts a sign-in and lets a person choose themselves at
// the simulated provider; `complete` handles the response that the browser then posts.

let deployments: Awaited<ReturnType<typeof startDeployments>>;
let deployment: Deployment;
let instance: Instance;
let otherInstance: Instance;
beforeAll(async () => {
  deployments = await startDeployments();
});
afterAll(() => deployments.stop());
beforeEach(async () => {
  deployment = await deployments.next();
  [instance, otherInstance] = [deployment.start(), deployment.start()];
});
afterEach(() => deployments.cloud.control.setSamlMode("correct"));

/** Changes the service's SSO configuration, and registers the service's resulting metadata with the provider. */
async function changeConfiguration(change: SsoChange) {
  const view = await instance.sso.configure(change, undefined, ADMINISTRATOR, ORIGIN);
  await deployments.cloud.control.registerSamlServiceProvider(await instance.sso.samlMetadata(ORIGIN));
  return view;
}
/** Turns on SSO with the simulated provider. */
const configure = (change: SsoChange = {}) => changeConfiguration({ ...samlSettings(deployment), ...change });
const ROLE_ATTRIBUTE = "http://schemas.microsoft.com/ws/2008/06/identity/claims/role";

describe("a person who signs in with SAML", () => {
  test("has a session with the name and role from the attributes", async () => {
    await configure({ rolesClaim: ROLE_ATTRIBUTE, roleMapping: { "Lifecycle.Auditor": "auditor" } });
    const completed = await complete(otherInstance, await browseBySaml(instance, "bruno", "/docs"));
    expect(completed.location).toBe("/docs");
    expect(completed.cookies.map(({ name }) => name)).toEqual(["__Host-session", "__Host-sso-saml"]);
    expect(await authenticateSession(instance, completed.cookies[0]!.value)).toMatchObject({
      username: "bruno",
      role: "auditor",
    });
    expect(await instance.sso.configuration()).toMatchObject({ totalSsoLogins: 1 });
  });

  test("is sent to the provider with a binding cookie, and is the same user at each sign-in", async () => {
    await configure();
    const redirection = await instance.sso.begin("/", ORIGIN, ADMINISTRATOR);
    // The cookie that binds the sign-in to the browser must be sent with a form from the provider's site: SameSite=None.
    expect(redirection.cookies).toEqual([
      expect.objectContaining({ name: "__Host-sso-saml", sameSite: "None", secure: true, httpOnly: true, path: "/" }),
    ]);
    const { action } = await chooseBySaml(redirection.location, "uma");
    expect(action).toBe(`${ORIGIN}/auth/sso/callback`);
    const names = await Promise.all(
      [1, 2].map(async () => {
        const { cookies } = await complete(instance, await browseBySaml(instance, "uma"));
        return (await authenticateSession(instance, cookies[0]!.value))?.username;
      }),
    );
    expect(new Set(names).size).toBe(1);
  });

  test.each<[SamlModeName, string]>([
    ["wrongRecipient", "badResponse recipient"],
    ["wrongDestination", "badResponse destination"],
    ["wrongAudience", "badResponse audience"],
    ["otherRequestConfirmed", "badResponse inResponseTo"],
    ["wrongAssertionIssuer", "badResponse issuer"],
    ["confirmationExpired", "badResponse expired"],
    ["foreignKey", "badResponse signature"],
    ["xsw4", "badResponse assertionCount"],
    ["failed", "providerRefused status"],
  ])("is rejected if the provider's response has the defect %s", async (mode, reason) => {
    await configure();
    deployments.cloud.control.setSamlMode(mode);
    expect(await problemOf(browseBySaml(instance, "uma").then((arrival) => complete(instance, arrival)))).toBe(
      "signInFailed",
    );
    expect(deployment.rejectionReasons()).toEqual([reason]);
    // The audit log contains no text of the provider, such as its wrong addresses at elsewhere.example.
    expect(JSON.stringify(deployment.events)).not.toContain("elsewhere.example");
  });

  test("is rejected if no person was chosen or the response is missing", async () => {
    await configure();
    expect(await problemOf(complete(instance, await browseBySaml(instance, "")))).toBe("signInFailed");
    const arrival = await browseBySaml(instance, "uma");
    expect(await problemOf(complete(instance, { ...arrival, parameters: new URLSearchParams() }))).toBe("signInFailed");
    expect(deployment.rejectionReasons()).toEqual(["providerRefused status", "badResponse malformed"]);
  });
});

describe("a response", () => {
  test("is rejected from another browser, for another sign-in, or after ten minutes", async () => {
    await configure();
    const [firstArrival, secondArrival] = [await browseBySaml(instance, "uma"), await browseBySaml(instance, "ada")];
    expect(await problemOf(complete(instance, { ...firstArrival, cookie: secondArrival.cookie }))).toBe("signInStale");
    expect(await problemOf(complete(instance, { ...firstArrival, cookie: undefined }))).toBe("signInStale");
    expect(await problemOf(complete(instance, { ...firstArrival, requestId: undefined }))).toBe("signInStale");
    const swapped = { ...secondArrival, parameters: firstArrival.parameters };
    expect(await problemOf(complete(instance, swapped))).toBe("signInFailed");
    deployment.pass(10 * MINUTE_MS);
    expect(await problemOf(complete(instance, firstArrival))).toBe("signInStale");
    expect(deployment.rejectionReasons()).toEqual([
      "otherBrowser",
      "otherBrowser",
      "unknownRequest",
      "badResponse inResponseTo",
      "expired",
    ]);
  });

  test("signs in once if it arrives at two instances at once", async () => {
    await configure();
    const arrival = await browseBySaml(instance, "uma");
    const outcomes = await Promise.all([instance, otherInstance].map((each) => problemOf(complete(each, arrival))));
    expect(outcomes.sort()).toEqual(["none", "signInStale"]);
    expect(await problemOf(complete(otherInstance, arrival))).toBe("signInStale");
  });

  test("is accepted once even if its request has not been marked as used", async () => {
    await configure();
    const config = {
      ...UNCONFIGURED,
      samlIdpEntityId: entityId(),
      samlEntryPoint: signInUrl(),
      samlIdpCertificates: certificates(),
    };
    const request: SignInRequest = {
      id: "relay",
      returnUrl: "/",
      generation: "none",
      // In place of a hash of the cookie. The AuthnRequest's id contains the value, so it can't contain a space.
      derived: (purpose) => purpose.replace(" ", "-"),
    };
    const saml = ({ tables }: Instance) =>
      createSaml({
        tables,
        secrets: { read: async () => undefined },
        clock: deployment.clock,
        randomness: systemRandomness(),
      });
    const url = await saml(instance).begin(config, request, ORIGIN);
    const parameters = new URLSearchParams({ ...(await chooseBySaml(url.href, "uma")).form });
    const work = [instance, otherInstance].map((each) => saml(each).complete(config, request, { parameters }, ORIGIN));
    const outcomes = await Promise.allSettled(work);
    expect(outcomes.filter(({ status }) => status === "fulfilled")).toHaveLength(1);
    expect(outcomes.find(({ status }) => status === "rejected")).toMatchObject({ reason: { reason: "used" } });

    const storedAssertions = async () => {
      let rows = 0;
      for await (const page of instance.tables.pages(ASSERTION_ROWS, { partitionKey: "assertions" }))
        rows += page.length;
      return rows;
    };
    expect(await storedAssertions()).toBe(1);
    await instance.sso.cleanUp(ADMINISTRATOR);
    expect(await storedAssertions()).toBe(1);
    // The assertion is valid for 5 minutes, and a minute more for clocks that differ.
    deployment.pass(6 * MINUTE_MS);
    await instance.sso.cleanUp(ADMINISTRATOR);
    expect(await storedAssertions()).toBe(0);
  });
});

describe("the provider's key", () => {
  test("can be replaced while the old and the new certificate are configured", async () => {
    await configure();
    deployments.cloud.control.rollSamlKeys();
    expect(await problemOf(browseBySaml(instance, "uma").then((arrival) => complete(instance, arrival)))).toBe(
      "signInFailed",
    );
    expect(deployment.rejectionReasons()).toEqual(["badResponse signature"]);
    const { samlIdpCertificates: configuredCertificates } = await changeConfiguration({
      samlIdpCertificates: certificates(),
    });
    expect(configuredCertificates).toHaveLength(2);
    // The simulated provider's certificates are valid for 1,000 days.
    expect(configuredCertificates.every(({ expiresOn }) => Date.parse(expiresOn) > Date.now() + 300 * DAY_MS)).toBe(
      true,
    );
    expect(await problemOf(browseBySaml(instance, "uma").then((arrival) => complete(instance, arrival)))).toBe("none");
  });
});

describe("the service's own key", () => {
  test("signs requests and decrypts assertions", async () => {
    const { samlServiceCertificate } = await configure({ samlSignRequests: true });
    const certificate = samlServiceCertificate!.certificate;
    expect(Date.parse(samlServiceCertificate!.expiresOn)).toBeGreaterThan(
      deployment.clock.now().getTime() + 1000 * DAY_MS,
    );
    const base64OfCertificate = certificate.replace(/-----[A-Z ]+-----|\n/g, "");
    expect(await instance.sso.samlMetadata(ORIGIN)).toContain(base64OfCertificate);

    const redirection = await otherInstance.sso.begin("/", ORIGIN, ADMINISTRATOR);
    expect(new URL(redirection.location).searchParams.has("Signature")).toBe(true);
    const arrival = await browseBySaml(otherInstance, "uma");
    const encrypted = await encryptedFor(certificate, arrival.parameters.get("SAMLResponse")!);
    expect(
      await problemOf(
        complete(
          instance,
          withChangedResponse(arrival, () => encrypted),
        ),
      ),
    ).toBe("none");

    const row = await instance.tables.get(Configuration, SSO, CONFIGURATION_KEY);
    expect(row?.samlServiceKey).toBeDefined();
    const rowEventsAndLogs = JSON.stringify([
      row,
      deployment.events,
      deployment.logLines,
      await instance.sso.configuration(),
    ]);
    expect(rowEventsAndLogs).not.toMatch(/PRIVATE KEY/);

    // Without signed requests the service has no key, so it can't decrypt an assertion, and the key is deleted a day later.
    await changeConfiguration({ samlSignRequests: false });
    expect(await instance.sso.samlMetadata(ORIGIN)).not.toContain("X509Certificate");
    const arrivalWithoutKey = await browseBySaml(instance, "uma");
    const encryptedWithoutKey = await encryptedFor(certificate, arrivalWithoutKey.parameters.get("SAMLResponse")!);
    expect(
      await problemOf(
        complete(
          instance,
          withChangedResponse(arrivalWithoutKey, () => encryptedWithoutKey),
        ),
      ),
    ).toBe("signInFailed");
    expect(deployment.rejectionReasons()).toEqual(["badResponse encrypted"]);
    deployment.pass(25 * HOUR_MS);
    await instance.sso.cleanUp(ADMINISTRATOR);
    expect(deployment.events.filter(({ type }) => type === "sso.secretRemoved")).not.toEqual([]);
  });
});

describe("certificates that expire", () => {
  test("are listed: the service's, and the provider's certificate that expires last", async () => {
    const expiringWithin = async (days: number) => {
      const credentials = [];
      const by = new Date(deployment.clock.now().getTime() + days * DAY_MS);
      for await (const credential of instance.sso.expiring(by)) credentials.push(credential);
      return credentials;
    };
    const provider = {
      samlEntryPoint: signInUrl(),
      samlIdpEntityId: entityId(),
      samlIdpCertificates: [certificateUntil(20)],
    };
    await changeConfiguration({ providerType: "saml", isEnabled: true, ...provider });
    expect(await expiringWithin(19)).toEqual([]);
    expect(await expiringWithin(30)).toMatchObject([
      { what: "SAML identity provider's certificate", name: entityId() },
    ]);
    await changeConfiguration({ samlIdpCertificates: [certificateUntil(20), certificateUntil(400)] });
    expect(await expiringWithin(30)).toEqual([]);
    await changeConfiguration({ samlSignRequests: true });
    // The service's certificate is valid for three years (1,095 days).
    const credentials = await expiringWithin(1100);
    expect(credentials.map(({ what }) => what)).toEqual([
      "SAML identity provider's certificate",
      "SAML service provider's certificate",
    ]);
    // The provider's last certificate has then expired, and is no longer listed.
    deployment.pass(401 * DAY_MS);
    expect(await expiringWithin(1100)).toHaveLength(1);
    await changeConfiguration({ isEnabled: false });
    expect(await expiringWithin(1100)).toEqual([]);
  });
});

describe("the configuration", () => {
  test.each<[string, SsoChange]>([
    ["samlEntryPoint", { samlEntryPoint: "http://login.acme.example/saml" }],
    ["samlEntryPoint", { samlEntryPoint: "javascript:alert(1)" }],
    ["samlEntryPoint", { samlEntryPoint: "https://user:secret@login.acme.example/" }],
    ["samlEntryPoint", { samlEntryPoint: "https://login.acme.example/#saml" }],
    ["samlIdAttribute", { samlIdAttribute: "http://schemas.xmlsoap.org/ws/2005/05/identity/claims/emailaddress" }],
    [
      "samlIdpCertificates.0",
      { samlIdpCertificates: ["-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"] },
    ],
    ["samlIdpCertificates.0", { samlIdpCertificates: [ellipticCertificate()] }],
    ["samlIdpMetadataXml", { samlIdpMetadataXml: "<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>" }],
    ["samlIdpEntityId", { samlIdpMetadataXml: "<a/>", samlIdpEntityId: "both" }],
    ["samlEntryPoint", { samlIdpMetadataXml: "<a/>", samlEntryPoint: "https://login.acme.example/saml" }],
    ["samlIdpCertificates", { samlIdpMetadataXml: "<a/>", samlIdpCertificates: ["both"] }],
    ["samlEntryPoint", { providerType: "saml", isEnabled: true }],
    ["samlIdpEntityId", { providerType: "saml", isEnabled: true, samlEntryPoint: "https://login.acme.example/saml" }],
    [
      "samlIdpCertificates",
      {
        providerType: "saml",
        isEnabled: true,
        samlEntryPoint: "https://login.acme.example/saml",
        samlIdpEntityId: "https://login.acme.example",
      },
    ],
  ])("is rejected because of %s: %j", async (member, change) => {
    await expect(changeConfiguration(change)).rejects.toMatchObject({
      code: "invalidRequest",
      errors: [{ path: `body.${member}` }],
    });
  });

  test("contains the metadata's content, and the audit log the fingerprints of the certificates", async () => {
    const view = await configure({ isEnabled: false });
    expect(view).toMatchObject({ samlIdpEntityId: entityId(), samlEntryPoint: signInUrl(), samlSignRequests: false });
    expect(view.samlIdpCertificates.map(({ certificate }) => certificate)).toEqual(certificates());
    const { after } = deployment.events.find(
      ({ type, outcome }) => type === "sso.configured" && outcome === "success",
    )!;
    expect(after).toMatchObject({
      samlIdpCertificates: certificates().map((certificate) => new X509Certificate(certificate).fingerprint256),
    });
  });

  test("is tested without saving it", async () => {
    const testResult = async (given: SsoTest) => {
      const { success, checks } = await instance.sso.test({ providerType: "saml", ...given }, ADMINISTRATOR, ORIGIN);
      return [success, ...checks.map(({ name, passed }) => `${name} ${passed}`)];
    };
    expect(await testResult({})).toEqual([false, "address false", "keys false"]);
    const { samlIdpMetadataXml } = samlSettings(deployment);
    expect(await testResult({ samlIdpMetadataXml })).toEqual([true, "address true", "keys true"]);
    await configure({ isEnabled: false });
    expect(await testResult({})).toEqual([true, "address true", "keys true"]);
    expect(await testResult({ samlIdpCertificates: [certificateUntil(-0.5)] })).toEqual([
      false,
      "address true",
      "keys false",
    ]);
    const samlIdpCertificates = [certificateUntil(400), certificateUntil(20)];
    const { checks } = await instance.sso.test({ samlIdpCertificates }, ADMINISTRATOR, ORIGIN);
    const day = new X509Certificate(samlIdpCertificates[0]!).validToDate.toISOString().split("T")[0];
    expect(checks[1]!.detail).toBe(`Certificates: 2; the last one expires on ${day}.`);
    await expect(testResult({ samlEntryPoint: "http://login.acme.example/" })).rejects.toMatchObject({
      code: "invalidRequest",
    });
  });

  test("invalidates sign-ins in progress when it changes", async () => {
    await configure();
    const arrival = await browseBySaml(instance, "uma");
    await changeConfiguration({ samlIdAttribute: "http://schemas.microsoft.com/identity/claims/objectidentifier" });
    expect(await problemOf(complete(instance, arrival))).toBe("signInStale");
  });
});

/** Rows of accepted assertions, by which the service rejects their repetition. */
const ASSERTION_ROWS = entity("Sso", z.object({ endsAt: z.string() }));

const matchInMetadata = (pattern: RegExp) => pattern.exec(deployments.cloud.saml.metadata())![1]!;
const entityId = () => matchInMetadata(/entityID="([^"]*)"/);
const signInUrl = () => matchInMetadata(/SingleSignOnService [^>]*Location="([^"]*)"/);
const certificates = () =>
  (deployments.cloud.saml.metadata().match(/(?<=<ds:X509Certificate>)[^<]*/g) ?? []).map((base64) =>
    pem("CERTIFICATE", Buffer.from(base64, "base64")),
  );

/** Returns a certificate with a new key, valid from yesterday and for this number of days from now. */
function certificateUntil(days: number): string {
  const { publicKey, privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
  const now = deployment.clock.now().getTime();
  const names = { subject: "CN=idp", issuer: "CN=idp", serial: Buffer.from([1]) };
  const times = { notBefore: new Date(now - DAY_MS), notAfter: new Date(now + days * DAY_MS) };
  return pem("CERTIFICATE", makeCertificate({ ...names, ...times, publicKey, signingKey: privateKey }));
}

function ellipticCertificate(): string {
  const { publicKey, privateKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const names = { subject: "CN=idp", issuer: "CN=idp", serial: Buffer.from([1]) };
  const times = { notBefore: new Date("2026-01-01"), notAfter: new Date("2027-01-01") };
  return pem("CERTIFICATE", makeCertificate({ ...names, ...times, publicKey, signingKey: privateKey }));
}

/**
 * Encrypts the assertion in a response for the holder of a certificate's key. Takes the response in Base64 and returns XML.
 */
async function encryptedFor(certificate: string, response: string): Promise<string> {
  const xml = Buffer.from(response, "base64").toString();
  const assertion = /<saml:Assertion.*<\/saml:Assertion>/s.exec(xml)![0];
  const data = await new Promise<string>((resolve, reject) => {
    const options = {
      rsa_pub: new X509Certificate(certificate).publicKey.export({ type: "spki", format: "pem" }).toString(),
      pem: certificate,
      encryptionAlgorithm: "http://www.w3.org/2009/xmlenc11#aes256-gcm" as const,
      keyEncryptionAlgorithm: "http://www.w3.org/2001/04/xmlenc#rsa-oaep-mgf1p" as const,
    };
    encrypt(assertion, options, (error, result) => (error ? reject(error) : resolve(result)));
  });
  return xml.replace(assertion, () => `<saml:EncryptedAssertion>${data}</saml:EncryptedAssertion>`);
}
