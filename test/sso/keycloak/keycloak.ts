import { randomBytes } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import type { Service } from "../../support/service.ts";

// Drives a running Keycloak for the tests of this folder: its administration API, and the browser of a person.

/** Address of a running Keycloak, for example http://127.0.0.1:8180. Its administrator is admin with the password admin. */
export const KEYCLOAK_URL = process.env.KEYCLOAK_URL?.replace(/\/$/, "");

/** The service's public address. The browser sends its requests to the address of the test's host instead. */
export const ORIGIN = "http://localhost:7071";
export const CLIENT_ID = "lifecycle";
const PASSWORD = "a-long-enough-passphrase";

// biome-ignore lint/suspicious/noExplicitAny: representations of Keycloak, of which each test knows the members that it uses
export type Representation = any;

const ROLES = ["Lifecycle.Admin", "Lifecycle.Auditor", "Lifecycle.Operator", "Lifecycle.User"];

/** People of the realm. The email address of everyone except Eve is verified. */
const PEOPLE: Record<string, { name: [string, string]; roles: string[] }> = {
  ada: { name: ["Ada", "Lindqvist"], roles: ["Lifecycle.Admin"] },
  olga: { name: ["Olga", "Brandt"], roles: ["Lifecycle.Operator"] },
  otto: { name: ["Otto", "Novak"], roles: ["Lifecycle.Operator", "Lifecycle.Auditor"] },
  nina: { name: ["Nina", "Haas"], roles: [] },
  uma: { name: ["Uma", "Okafor"], roles: ["Lifecycle.User"] },
  eve: { name: ["Eve", "Moreau"], roles: ["Lifecycle.User"] },
  "jürgen.größe": { name: ["Jürgen", "Größe"], roles: ["Lifecycle.User"] },
};

const groupOf = (role: string) => role.replace("Lifecycle.", "");

/** A realm of its own in Keycloak, which `remove` deletes. */
export class Realm {
  readonly name = `lifecycle-${randomBytes(4).toString("hex")}`;
  readonly url: string;
  readonly #keycloakUrl: string;
  #token = { value: "", readAt: 0 };

  private constructor(keycloakUrl: string) {
    this.#keycloakUrl = keycloakUrl;
    this.url = `${keycloakUrl}/realms/${this.name}`;
  }

  static async create(keycloakUrl: string): Promise<Realm> {
    const realm = new Realm(keycloakUrl);
    const users = Object.entries(PEOPLE).map(([username, { name, roles }]) => ({
      username,
      enabled: true,
      firstName: name[0],
      lastName: name[1],
      email: `${username.replace("ü", "ue").replace("öß", "oess")}@acme.example`,
      emailVerified: username !== "eve",
      credentials: [{ type: "password", value: PASSWORD, temporary: false }],
      realmRoles: roles,
      groups: roles.map((role) => `/${groupOf(role)}`),
    }));
    await realm.request("POST", "/admin/realms", {
      realm: realm.name,
      enabled: true,
      roles: { realm: ROLES.map((name) => ({ name })) },
      groups: ROLES.map((role) => ({ name: groupOf(role) })),
      users,
    });
    return realm;
  }

  /** Sends a request to the administration API of the realm. @returns The parsed body, or the ID of a created object. */
  admin(method: string, path: string, body?: unknown): Promise<Representation> {
    return this.request(method, `/admin/realms/${this.name}${path}`, body);
  }

  async request(method: string, path: string, body?: unknown): Promise<Representation> {
    const answer = await fetch(this.#keycloakUrl + path, {
      method,
      headers: { authorization: `Bearer ${await this.#accessToken()}`, "content-type": "application/json" },
      ...(body !== undefined && { body: typeof body === "string" ? body : JSON.stringify(body) }),
    });
    const text = await answer.text();
    if (!answer.ok) throw new Error(`Keycloak answered ${method} ${path} with ${answer.status}: ${text}`);
    return text === "" ? answer.headers.get("location")?.split("/").at(-1) : JSON.parse(text);
  }

  /** Administrators' access tokens are valid for a minute. */
  async #accessToken(): Promise<string> {
    if (performance.now() - this.#token.readAt > 30_000 || this.#token.value === "") {
      const form = { client_id: "admin-cli", grant_type: "password", username: "admin", password: "admin" };
      const answer = await fetch(`${this.#keycloakUrl}/realms/master/protocol/openid-connect/token`, {
        method: "POST",
        body: new URLSearchParams(form),
      });
      this.#token = { value: (await answer.json()).access_token, readAt: performance.now() };
    }
    return this.#token.value;
  }

  async user(username: string): Promise<Representation> {
    return (await this.admin("GET", `/users?exact=true&username=${encodeURIComponent(username)}`))[0];
  }

  /** Replaces the service's roles of a person. */
  async setRoles(username: string, names: readonly string[]): Promise<void> {
    const { id } = await this.user(username);
    const all: Representation[] = await this.admin("GET", "/roles");
    const own = all.filter(({ name }) => ROLES.includes(name));
    await this.admin("DELETE", `/users/${id}/role-mappings/realm`, own);
    await this.admin(
      "POST",
      `/users/${id}/role-mappings/realm`,
      own.filter(({ name }) => names.includes(name)),
    );
  }

  async setEnabled(username: string, enabled: boolean): Promise<void> {
    const user = await this.user(username);
    await this.admin("PUT", `/users/${user.id}`, { ...user, enabled });
  }

  async client(clientId = CLIENT_ID): Promise<Representation> {
    return (await this.admin("GET", `/clients?clientId=${encodeURIComponent(clientId)}`))[0];
  }

  /** Runs with changed members and attributes of a client, and restores them. */
  async withClient<T>(change: Representation, run: () => Promise<T>, clientId = CLIENT_ID): Promise<T> {
    const before = await this.client(clientId);
    const attributes = { ...before.attributes, ...change.attributes };
    await this.admin("PUT", `/clients/${before.id}`, { ...before, ...change, attributes });
    try {
      return await run();
    } finally {
      // Keycloak keeps attributes that a change omits, and deletes empty ones.
      const added = Object.keys(change.attributes ?? {}).filter((name) => before.attributes?.[name] === undefined);
      const removed = Object.fromEntries(added.map((name) => [name, ""]));
      await this.admin("PUT", `/clients/${before.id}`, { ...before, attributes: { ...before.attributes, ...removed } });
    }
  }

  /** Runs with an additional protocol mapper of a client. */
  async withMapper<T>(mapper: Representation, run: () => Promise<T>, clientId = CLIENT_ID): Promise<T> {
    const { id } = await this.client(clientId);
    const mapperId = await this.admin("POST", `/clients/${id}/protocol-mappers/models`, mapper);
    try {
      return await run();
    } finally {
      await this.admin("DELETE", `/clients/${id}/protocol-mappers/models/${mapperId}`);
    }
  }

  /** Adds a signing key, which Keycloak then prefers. @returns A function that deletes the older RSA signing keys. */
  async addSigningKey(): Promise<() => Promise<void>> {
    const providers: Representation[] = await this.admin("GET", "/components?type=org.keycloak.keys.KeyProvider");
    const older = providers.filter(({ providerId }) => providerId === "rsa-generated");
    const { id } = await this.admin("GET", "");
    const config = { priority: [String(100 + older.length)], enabled: ["true"], active: ["true"], keySize: ["2048"] };
    const key = { name: `rsa-${older.length}`, providerId: "rsa-generated", parentId: id };
    await this.admin("POST", "/components", { ...key, providerType: "org.keycloak.keys.KeyProvider", config });
    return async () => {
      for (const provider of older) await this.admin("DELETE", `/components/${provider.id}`);
    };
  }

  async remove(): Promise<void> {
    await this.admin("DELETE", "");
  }
}

/** What the browser shows at the end of redirects and forms that submit themselves. */
export interface Page {
  url: URL;
  status: number;
  text: string;
  requestId: string | null;
  /** The view of the service to which it redirected. It is not opened. */
  view?: string;
  /** A request to the service's callback that `holdCallback` kept back. */
  held?: { url: URL; form: URLSearchParams | undefined };
}

let browsers = 0;

/** The browser of a person: keeps cookies, follows redirects, submits forms that submit themselves. */
export class Browser {
  readonly #service: Service;
  readonly #cookies = new Map<string, Map<string, string>>();
  /** An address of its own, because sign-ins from one address are limited. */
  readonly #address = `198.51.${100 + Math.floor(++browsers / 250)}.${(browsers % 250) + 1}`;
  /** Requests to the service's callback, in order. */
  readonly callbacks: NonNullable<Page["held"]>[] = [];
  /** True to return the request to the callback as `held`, instead of sending it. A test can then change it or send it twice. */
  holdCallback = false;
  /** False to ignore the cookies of answers, also their deletion. */
  storesCookies = true;

  constructor(service: Service) {
    this.#service = service;
  }

  /** Starts a sign-in at the service, and enters the person's name and password if Keycloak asks for them. */
  async signIn(person: string, returnUrl = "/"): Promise<Page> {
    const page = await this.open(`${ORIGIN}/auth/sso/login?returnUrl=${encodeURIComponent(returnUrl)}`);
    return isSignInPage(page) ? await this.enterPassword(page, person) : page;
  }

  enterPassword(page: Page, person: string): Promise<Page> {
    return this.submit(page, "kc-form-login", { username: person, password: PASSWORD });
  }

  /** Submits the form with an ID, with its hidden fields. */
  submit(page: Page, id: string | undefined, fields: Record<string, string>): Promise<Page> {
    const form = formOf(page, id);
    if (!form) throw new Error(`No form ${id} at ${page.url}: ${page.text}`);
    return this.open(form.action.href, new URLSearchParams({ ...form.fields, ...fields }));
  }

  async open(address: string, form?: URLSearchParams): Promise<Page> {
    let url = new URL(address);
    let body = form;
    for (let step = 0; step < 20; step++) {
      const isOwn = url.origin === ORIGIN;
      if (isOwn && url.pathname === "/auth/sso/callback") {
        this.callbacks.push({ url, form: body });
        if (this.holdCallback) return { url, status: 0, text: "", requestId: null, held: this.callbacks.at(-1)! };
      }
      const answer = await this.send(url, body);
      const text = await answer.text();
      const page = { url, status: answer.status, text, requestId: answer.headers.get("x-request-id") };
      const location = answer.headers.get("location");
      if (location !== null && answer.status < 400) {
        const next = new URL(location, url);
        const isView = next.origin === ORIGIN && !next.pathname.startsWith("/auth/sso/");
        if (isView) return { ...page, view: next.pathname + next.search + next.hash };
        [url, body] = [next, undefined];
        continue;
      }
      // A form with a SAML message or artifact submits itself in a real browser.
      const automatic = /name="SAML(Response|Request|art)"/i.test(text) ? formOf(page, undefined) : undefined;
      if (!automatic) return page;
      [url, body] = [automatic.action, new URLSearchParams(automatic.fields)];
    }
    throw new Error(`Too many redirects, now at ${url}`);
  }

  /** Sends one request with the cookies of its site, and stores the cookies of the answer. */
  async send(url: URL, body?: URLSearchParams, method = body ? "POST" : "GET"): Promise<Response> {
    const isOwn = url.origin === ORIGIN;
    const jar = this.#cookies.get(url.origin) ?? new Map<string, string>();
    this.#cookies.set(url.origin, jar);
    const answer = await fetch(isOwn ? this.#service.url + url.pathname + url.search : url, {
      method,
      redirect: "manual",
      headers: {
        accept: "text/html",
        cookie: [...jar].map(([name, value]) => `${name}=${value}`).join("; "),
        ...(isOwn && { "X-Forwarded-For": this.#address, "Sec-Fetch-Site": "same-origin" }),
      },
      ...(body && { body }),
    });
    for (const cookie of this.storesCookies ? answer.headers.getSetCookie() : []) {
      const [, name, value] = /^([^=]+)=([^;]*)/.exec(cookie)!;
      if (value === "" || /max-age=0/i.test(cookie)) jar.delete(name!);
      else jar.set(name!, value!);
    }
    return answer;
  }

  /** Returns the user of this browser's session at the service, or undefined without one. */
  async me(): Promise<Representation | undefined> {
    const answer = await this.send(new URL(`${ORIGIN}/auth/me`));
    return answer.status === 200 ? await answer.json() : undefined;
  }

  /** Signs out at the service. @returns The response's `logoutUrl`. */
  async signOut(): Promise<string | null> {
    const answer = await this.send(new URL(`${ORIGIN}/auth/logout`), undefined, "POST");
    return (await answer.json()).logoutUrl;
  }

  /** Waits until the session here has ended, which a request of Keycloak causes. @throws {Error} if it continues */
  async requireEnd(): Promise<void> {
    for (let attempt = 0; attempt < 50; attempt++) {
      if ((await this.me()) === undefined) return;
      await delay(100);
    }
    throw new Error("The session continues.");
  }
}

export const isSignInPage = ({ text }: Page): boolean => text.includes('id="kc-form-login"');

const decodeHtml = (text: string): string =>
  text
    .replace(/&#x([\da-f]+);/gi, (_, code) => String.fromCodePoint(Number.parseInt(code, 16)))
    .replace(/&#(\d+);/g, (_, code) => String.fromCodePoint(Number(code)))
    .replaceAll("&quot;", '"')
    .replaceAll("&lt;", "<")
    .replaceAll("&gt;", ">")
    .replaceAll("&amp;", "&");

function formOf({ text, url }: Page, id: string | undefined) {
  const forms = text.match(/<form[\s\S]*?<\/form>/gi) ?? [];
  const form = forms.find((one) => id === undefined || one.includes(`id="${id}"`));
  const attribute = (element: string, name: string) =>
    decodeHtml(new RegExp(`\\s${name}="([^"]*)"`, "i").exec(element)?.[1] ?? "");
  if (form === undefined) return undefined;
  const inputs = (form.match(/<input[^>]*>/gi) ?? []).filter((input) => /type="hidden"/i.test(input));
  return {
    action: new URL(attribute(form.slice(0, form.indexOf(">")), "action"), url),
    fields: Object.fromEntries(inputs.map((input) => [attribute(input, "name"), attribute(input, "value")])),
  };
}

/** Where Keycloak's pages have their message: an alert, an error of a field, an error page, or else a heading. */
const MESSAGES = [
  /class="[^"]*(?:alert__title|kc-feedback-text)[^"]*"[^>]*>([\s\S]*?)<\/span>/g,
  /id="input-error[^"]*"[^>]*>([\s\S]*?)<\/(?:span|div)>/g,
  /class="instruction"[^>]*>([\s\S]*?)<\/p>/g,
];
const messagesOf = ({ text }: Page): string[] =>
  MESSAGES.flatMap((pattern) => [...text.matchAll(pattern)].map(([, found]) => plainText(found!))).filter(Boolean);

const plainText = (html: string): string =>
  decodeHtml(html.replace(/<[^>]*>/g, " "))
    .replace(/\s+/g, " ")
    .trim();

/** Returns the message on a page of Keycloak. */
function messageOf(page: Page): string {
  const [message = plainText(/<h1[^>]*>([\s\S]*?)<\/h1>/.exec(page.text)?.[1] ?? page.text)] = messagesOf(page);
  return `Keycloak ${page.status}: ${message.slice(0, 120)}`;
}

/**
 * Returns what a sign-in led to: `in as <role>`, the status and the reason of the audit entry with the request ID on the page, or
 * the message of Keycloak.
 */
export async function outcomeOf(service: Service, browser: Browser, page: Page): Promise<string> {
  if (page.view !== undefined) return `in as ${(await browser.me())?.role}`;
  if (page.url.origin !== ORIGIN)
    return isSignInPage(page) && messagesOf(page).length === 0 ? "Keycloak asks for a password" : messageOf(page);
  if (page.requestId === null || !page.text.includes(page.requestId)) return `${page.status} without a request ID`;
  const { body } = await service.admin("GET", "/audit/entries?event_type=user.signInRefused");
  const entry = body.items.find(
    (one: Representation) => one.requestId === page.requestId || one.details.requestIds?.includes(page.requestId),
  );
  if (!entry) return `${page.status} without an audit entry`;
  const { reason, code, algorithm } = entry.details;
  return `${page.status} ${[reason, code, algorithm].filter(Boolean).join(" ")}`;
}
