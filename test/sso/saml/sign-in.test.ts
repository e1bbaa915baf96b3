import { generateKeyPairSync, X509Certificate } from "node:crypto";
import type { SamlModeName } from "simulated-cloud/idp/saml-modes.ts";
import { makeCertificate, pem } from "simulated-cloud/x509.ts";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { encrypt } from "xml-encryption";
import * as z from "zod";
import { entity } from "../../../shared/platform/storage/entity.ts";
import { DAY_MS, HOUR_MS, MINUTE_MS } from "../../../shared/platform/time.ts";
import type { SsoChange, SsoTest } from "../../../shared/sso/api.ts";
import { CONFIGURATION_KEY, Configuration, SSO, UNCONFIGURED } from "../../../shared/sso/configuration.ts";
import { createSaml } from "../../../shared/sso/saml/saml.ts";
import type { SignInRequest } from "../../../shared/sso/sign-in-requests.ts";
import {
  ADMINISTRATOR,
  complete,
  type Deployment,
  type Instance,
  ORIGIN,
  problemOf,
  startDeployments,
  whoIs,
} from "../support.ts";
import { browseBySaml, chooseBySaml, samlSettings, withResponse } from "./browser-sign-in.ts";

let deployments: Awaited<ReturnType<typeof startDeployments>>;
let deployment: Deployment;
let instance: Instance;
let other: Instance;
beforeAll(async () => {
  deployments = await startDeployments();
});
afterAll(() => deployments.stop());
beforeEach(() => {
  deployment = deployments.next();
  [instance, other] = [deployment.start(), deployment.start()];
});
afterEach(() => deployments.cloud.control.setSamlMode("correct"));

/** Configures the service and gives the provider its metadata, which the change may have altered. */
async function put(change: SsoChange) {
  const view = await instance.sso.configure(change, undefined, ADMINISTRATOR, ORIGIN);
  await deployments.cloud.control.registerSamlServiceProvider(await instance.sso.samlMetadata(ORIGIN));
  return view;
}
const configure = (change: SsoChange = {}) => put({ ...samlSettings(deployment), ...change });
const ROLE = "http://schemas.microsoft.com/ws/2008/06/identity/claims/role";

describe("a person who signs in with SAML", () => {
  test("has a session on every instance, with the name and role from the attributes", async () => {
    await configure({ rolesClaim: ROLE, roleMapping: { "Lifecycle.Auditor": "auditor" } });
    const done = await complete(other, await browseBySaml(instance, "bruno", "/docs"));
    expect(done.location).toBe("/docs");
    expect(done.cookies.map(({ name }) => name)).toEqual(["__Host-session", "__Host-sso-saml"]);
    expect(await whoIs(instance, done.cookies[0]!.value)).toMatchObject({ username: "bruno", role: "auditor" });
    expect(await instance.sso.configuration()).toMatchObject({ totalSsoLogins: 1 });
  });

  test("is the same user at the next sign-in, with a binding cookie that browsers send from another site", async () => {
    await configure();
    const redirection = await instance.sso.begin("/", ORIGIN, ADMINISTRATOR);
    expect(redirection.cookies).toEqual([
      expect.objectContaining({ name: "__Host-sso-saml", sameSite: "None", secure: true, httpOnly: true, path: "/" }),
    ]);
    const { action } = await chooseBySaml(redirection.location, "uma");
    expect(action).toBe(`${ORIGIN}/auth/sso/callback`);
    const names = await Promise.all(
      [1, 2].map(async () => {
        const { cookies } = await complete(instance, await browseBySaml(instance, "uma"));
        return (await whoIs(instance, cookies[0]!.value))?.username;
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
  ])("is rejected with a clear error when the provider's response is wrong: %s", async (mode, reason) => {
    await configure();
    deployments.cloud.control.setSamlMode(mode);
    expect(await problemOf(browseBySaml(instance, "uma").then((back) => complete(instance, back)))).toBe(
      "signInFailed",
    );
    expect(deployment.refusals()).toEqual([reason]);
    expect(JSON.stringify(deployment.events)).not.toContain("elsewhere.example");
  });

  test("is rejected when no person was chosen, or without a response", async () => {
    await configure();
    expect(await problemOf(complete(instance, await browseBySaml(instance, "")))).toBe("signInFailed");
    const arrival = await browseBySaml(instance, "uma");
    expect(await problemOf(complete(instance, { ...arrival, parameters: new URLSearchParams() }))).toBe("signInFailed");
    expect(deployment.refusals()).toEqual(["providerRefused status", "badResponse malformed"]);
  });
});

describe("a response", () => {
  test("from another browser, without the cookie, late or of another sign-in is rejected", async () => {
    await configure();
    const [one, another] = [await browseBySaml(instance, "uma"), await browseBySaml(instance, "ada")];
    expect(await problemOf(complete(instance, { ...one, cookie: another.cookie }))).toBe("signInStale");
    expect(await problemOf(complete(instance, { ...one, cookie: undefined }))).toBe("signInStale");
    expect(await problemOf(complete(instance, { ...one, requestId: undefined }))).toBe("signInStale");
    const swapped = { ...another, parameters: one.parameters };
    expect(await problemOf(complete(instance, swapped))).toBe("signInFailed");
    deployment.pass(10 * MINUTE_MS);
    expect(await problemOf(complete(instance, one))).toBe("signInStale");
    expect(deployment.refusals()).toEqual([
      "otherBrowser",
      "otherBrowser",
      "unknownRequest",
      "badResponse inResponseTo",
      "expired",
    ]);
  });

  test("signs in once, also when it arrives at two instances at once", async () => {
    await configure();
    const arrival = await browseBySaml(instance, "uma");
    const outcomes = await Promise.all([instance, other].map((at) => problemOf(complete(at, arrival))));
    expect(outcomes.sort()).toEqual(["none", "signInStale"]);
    expect(await problemOf(complete(other, arrival))).toBe("signInStale");
  });

  test("has its assertion accepted once, even if a request could be answered twice", async () => {
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
      derived: (purpose) => purpose.replace(" ", "-"),
    };
    const saml = ({ tables }: Instance) =>
      createSaml({ tables, secrets: { read: async () => undefined }, clock: deployment.clock });
    const url = await saml(instance).begin(config, request, ORIGIN);
    const parameters = new URLSearchParams({ ...(await chooseBySaml(url.href, "uma")).form });
    const work = [instance, other].map((at) => saml(at).complete(config, request, { parameters }, ORIGIN));
    const outcomes = await Promise.allSettled(work);
    expect(outcomes.filter(({ status }) => status === "fulfilled")).toHaveLength(1);
    expect(outcomes.find(({ status }) => status === "rejected")).toMatchObject({ reason: { reason: "used" } });

    const kept = async () => {
      let rows = 0;
      for await (const page of instance.tables.pages(ROWS, { partitionKey: "assertions" })) rows += page.length;
      return rows;
    };
    expect(await kept()).toBe(1);
    await instance.sso.cleanUp(ADMINISTRATOR);
    expect(await kept()).toBe(1);
    deployment.pass(6 * MINUTE_MS);
    await instance.sso.cleanUp(ADMINISTRATOR);
    expect(await kept()).toBe(0);
  });
});

describe("the provider's key", () => {
  test("rolls over while both its certificates are configured", async () => {
    await configure();
    deployments.cloud.control.rollSamlKeys();
    expect(await problemOf(browseBySaml(instance, "uma").then((back) => complete(instance, back)))).toBe(
      "signInFailed",
    );
    expect(deployment.refusals()).toEqual(["badResponse signature"]);
    const { samlIdpCertificates: known } = await put({ samlIdpCertificates: certificates() });
    expect(known).toHaveLength(2);
    expect(known.every(({ expiresOn }) => Date.parse(expiresOn) > Date.now() + 300 * DAY_MS)).toBe(true);
    expect(await problemOf(browseBySaml(instance, "uma").then((back) => complete(instance, back)))).toBe("none");
  });
});

describe("the service's own key", () => {
  test("signs requests, decrypts assertions, and is stored only in the key vault", async () => {
    const { samlServiceCertificate } = await configure({ samlSignRequests: true });
    const certificate = samlServiceCertificate!.certificate;
    expect(Date.parse(samlServiceCertificate!.expiresOn)).toBeGreaterThan(
      deployment.clock.now().getTime() + 1000 * DAY_MS,
    );
    const bare = certificate.replace(/-----[A-Z ]+-----|\n/g, "");
    expect(await instance.sso.samlMetadata(ORIGIN)).toContain(bare);

    const redirection = await other.sso.begin("/", ORIGIN, ADMINISTRATOR);
    expect(new URL(redirection.location).searchParams.has("Signature")).toBe(true);
    const arrival = await browseBySaml(other, "uma");
    const encrypted = await encryptedFor(certificate, arrival.parameters.get("SAMLResponse")!);
    expect(
      await problemOf(
        complete(
          instance,
          withResponse(arrival, () => encrypted),
        ),
      ),
    ).toBe("none");

    const row = await instance.tables.get(Configuration, SSO, CONFIGURATION_KEY);
    expect(row?.samlServiceKey).toBeDefined();
    const everything = JSON.stringify([row, deployment.events, deployment.logged, await instance.sso.configuration()]);
    expect(everything).not.toMatch(/PRIVATE KEY/);

    await put({ samlSignRequests: false });
    expect(await instance.sso.samlMetadata(ORIGIN)).not.toContain("X509Certificate");
    const later = await browseBySaml(instance, "uma");
    const late = await encryptedFor(certificate, later.parameters.get("SAMLResponse")!);
    expect(
      await problemOf(
        complete(
          instance,
          withResponse(later, () => late),
        ),
      ),
    ).toBe("signInFailed");
    expect(deployment.refusals()).toEqual(["badResponse encrypted"]);
    deployment.pass(25 * HOUR_MS);
    await instance.sso.cleanUp(ADMINISTRATOR);
    expect(deployment.events.filter(({ type }) => type === "sso.secretRemoved")).not.toEqual([]);
  });
});

describe("certificates that expire", () => {
  test("cause alerts while in use: the service's, and the last-expiring one of the provider", async () => {
    const ending = async (days: number) => {
      const found = [];
      const by = new Date(deployment.clock.now().getTime() + days * DAY_MS);
      for await (const one of instance.sso.expiring(by)) found.push(one);
      return found;
    };
    const plain = {
      samlEntryPoint: signInUrl(),
      samlIdpEntityId: entityId(),
      samlIdpCertificates: [certificateUntil(20)],
    };
    await put({ providerType: "saml", isEnabled: true, ...plain });
    expect(await ending(19)).toEqual([]);
    expect(await ending(30)).toMatchObject([{ what: "SAML identity provider's certificate", name: entityId() }]);
    await put({ samlIdpCertificates: [certificateUntil(20), certificateUntil(400)] });
    expect(await ending(30)).toEqual([]);
    await put({ samlSignRequests: true });
    const all = await ending(1100);
    expect(all.map(({ what }) => what)).toEqual([
      "SAML identity provider's certificate",
      "SAML service provider's certificate",
    ]);
    deployment.pass(401 * DAY_MS);
    expect(await ending(1100)).toHaveLength(1);
    await put({ isEnabled: false });
    expect(await ending(1100)).toEqual([]);
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
  ])("is rejected for its %s: %j", async (member, change) => {
    await expect(put(change)).rejects.toMatchObject({ code: "invalidRequest", errors: [{ path: `body.${member}` }] });
  });

  test("shows the metadata's content, and certificates by their fingerprints", async () => {
    const view = await configure({ isEnabled: false });
    expect(view).toMatchObject({ samlIdpEntityId: entityId(), samlEntryPoint: signInUrl(), samlSignRequests: false });
    expect(view.samlIdpCertificates.map(({ certificate }) => certificate)).toEqual(certificates());
    const { after } = deployment.events.find(
      ({ type, outcome }) => type === "sso.configured" && outcome === "success",
    )!;
    expect(after).toMatchObject({
      samlIdpCertificates: certificates().map((one) => new X509Certificate(one).fingerprint256),
    });
  });

  test("is tested without saving it: missing members and expired certificates are reported", async () => {
    const tried = async (given: SsoTest) => {
      const { success, checks } = await instance.sso.test({ providerType: "saml", ...given }, ADMINISTRATOR, ORIGIN);
      return [success, ...checks.map(({ name, passed }) => `${name} ${passed}`)];
    };
    expect(await tried({})).toEqual([false, "address false", "keys false"]);
    const { samlIdpMetadataXml } = samlSettings(deployment);
    expect(await tried({ samlIdpMetadataXml })).toEqual([true, "address true", "keys true"]);
    await configure({ isEnabled: false });
    expect(await tried({})).toEqual([true, "address true", "keys true"]);
    expect(await tried({ samlIdpCertificates: [certificateUntil(-0.5)] })).toEqual([
      false,
      "address true",
      "keys false",
    ]);
    const samlIdpCertificates = [certificateUntil(400), certificateUntil(20)];
    const { checks } = await instance.sso.test({ samlIdpCertificates }, ADMINISTRATOR, ORIGIN);
    const day = new X509Certificate(samlIdpCertificates[0]!).validToDate.toISOString().split("T")[0];
    expect(checks[1]!.detail).toBe(`Certificates: 2; the last one ends on ${day}.`);
    await expect(tried({ samlEntryPoint: "http://login.acme.example/" })).rejects.toMatchObject({
      code: "invalidRequest",
    });
  });

  test("that changes invalidates sign-ins in progress", async () => {
    await configure();
    const arrival = await browseBySaml(instance, "uma");
    await put({ samlIdAttribute: "http://schemas.microsoft.com/identity/claims/objectidentifier" });
    expect(await problemOf(complete(instance, arrival))).toBe("signInStale");
  });
});

/** Rows of used assertions. */
const ROWS = entity("Sso", z.object({ endsAt: z.string() }));

const inMetadata = (pattern: RegExp) => pattern.exec(deployments.cloud.saml.metadata())![1]!;
const entityId = () => inMetadata(/entityID="([^"]*)"/);
const signInUrl = () => inMetadata(/Location="([^"]*)"/);
const certificates = () =>
  (deployments.cloud.saml.metadata().match(/(?<=<ds:X509Certificate>)[^<]*/g) ?? []).map((base64) =>
    pem("CERTIFICATE", Buffer.from(base64, "base64")),
  );

/** With a key of its own, valid from yesterday. */
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

/** A response whose assertion only the holder of the certificate's key can decrypt. */
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
