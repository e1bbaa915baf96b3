import { appendFileSync } from "node:fs";
import { afterAll, expect, test } from "vitest";
import { observe } from "../../../infra/conformance/case.ts";
import { licence } from "../../support/licence.ts";
import { type MovedClock, movedClock } from "../../support/moved-clock.ts";
import { ADMIN, Service } from "../../support/service.ts";
import { Browser, KEYCLOAK_URL, ORIGIN, outcomeOf, type Page, Realm, type Representation } from "./keycloak.ts";

// Runs the built service with a realm of a running Keycloak. Each case compares what it saw with what is expected.

export class Lab {
  readonly service: Service;
  readonly realm: Realm;
  readonly clock: MovedClock;

  private constructor(service: Service, realm: Realm, clock: MovedClock) {
    this.service = service;
    this.realm = realm;
    this.clock = clock;
  }

  static async start(): Promise<Lab> {
    const { host } = new URL(KEYCLOAK_URL!);
    const clock = movedClock();
    const [service, realm] = await Promise.all([
      Service.start({
        company: { subscriptions: [] },
        // The service's time is that of storage.
        storageEnv: clock.environment,
        // Port 9 has no server. With two hops, the address is the one that the browser sends in X-Forwarded-For.
        env: {
          LICENSE_KEY: await licence(),
          PUBLIC_BASE_URL: ORIGIN,
          PRIVATE_TARGET_HOSTS: `${host},127.0.0.1:9`,
          TRUSTED_PROXY_HOPS: "2",
        },
      }),
      Realm.create(KEYCLOAK_URL!),
    ]);
    return new Lab(service, realm, clock);
  }

  /** Changes the configuration of single sign-on. @throws {Error} if the service rejects it */
  async configure(change: Representation): Promise<Representation> {
    const { status, text, body } = await this.service.admin("PUT", "/auth/sso/config", change);
    if (status !== 200) throw new Error(`The service answered ${status}: ${text}`);
    return body;
  }

  /** Runs with a changed configuration, and restores the members. */
  async withConfiguration<T>(change: Representation, run: () => Promise<T>): Promise<T> {
    const before = (await this.service.admin("GET", "/auth/sso/config")).body;
    await this.configure(change);
    try {
      return await run();
    } finally {
      const restored = Object.keys(change).filter((name) => name in before);
      await this.configure(Object.fromEntries(restored.map((name) => [name, restoredMember(name, before[name])])));
    }
  }

  /** Returns the result of a connection test: `passed`, or the failed check with its text. */
  async connectionTest(given: Representation = {}): Promise<string> {
    const { status, body } = await this.service.admin("POST", "/auth/sso/config/test", given);
    if (status !== 200) return `${status} ${body.detail}`;
    const failed = body.checks.find(({ passed }: Representation) => !passed);
    return failed ? `${failed.name}: ${failed.detail}` : "passed";
  }

  outcome(browser: Browser, page: Page): Promise<string> {
    return outcomeOf(this.service, browser, page);
  }

  /** Signs a person in with a new browser, and returns the outcome. */
  async signIn(person: string, returnUrl?: string): Promise<string> {
    const browser = new Browser(this.service);
    return await this.outcome(browser, await browser.signIn(person, returnUrl));
  }

  /** Signs a person in with a new browser, and returns the browser. */
  async signInNewBrowser(person: string): Promise<Browser> {
    const browser = new Browser(this.service);
    const page = await browser.signIn(person);
    if (page.view === undefined) throw new Error(await this.outcome(browser, page));
    return browser;
  }

  /** Runs with the service's clock ahead of Keycloak's. */
  async withClock<T>(milliseconds: number, run: () => Promise<T>): Promise<T> {
    await this.clock.add(milliseconds);
    try {
      return await run();
    } finally {
      await this.clock.add(-milliseconds);
    }
  }

  /** Returns the HTTP status of a sign-in with the bootstrap administrator's password. */
  async passwordStatus(): Promise<number> {
    return (await this.service.call("POST", "/auth/login", { body: ADMIN })).status;
  }

  async stop(): Promise<void> {
    await Promise.all([this.realm.remove(), this.service.stop()]);
    this.clock.remove();
  }
}

const restoredMember = (name: string, value: Representation) =>
  name === "samlIdpCertificates" ? value.map(({ certificate }: Representation) => certificate) : value;

/**
 * Declares a case: a test that expects an outcome. After the last test, the cases are printed as rows of a table. If
 * CONFORMANCE_CASES names a file, each case is appended to it as a line of JSON (infra/conformance/parts/keycloak.ts).
 */
export function createCases() {
  const rows: string[] = [];
  afterAll(() => console.log(["| case | expected | seen |", "| --- | --- | --- |", ...rows].join("\n")));
  return (name: string, expected: string | RegExp, run: () => Promise<string>): void =>
    test(name, { retry: 0 }, async () => {
      const observed = await observe(name, expected, run);
      const { seen } = observed;
      rows.push(`| ${name} | ${observed.expected} | ${seen.replaceAll("|", "\\|")} |`);
      const file = process.env.CONFORMANCE_CASES;
      if (file !== undefined) appendFileSync(file, `${JSON.stringify(observed)}\n`);
      if (typeof expected === "string") expect(seen).toBe(expected);
      else expect(seen).toMatch(expected);
    });
}
