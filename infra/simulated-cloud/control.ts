import type { ApiTokenRequest, ApiTokens } from "./api-tokens.ts";
import type { AppConfiguration } from "./app-configuration.ts";
import type { ConsumersControl } from "./arm/consumers.ts";
import type { Assignment, Authorization } from "./authorization.ts";
import type { CloudClock } from "./clock.ts";
import type {
  AssetKind,
  CompanyCertificate,
  CompanyKey,
  CompanySecret,
  CompanySubscription,
  CompanyVault,
} from "./company/company.ts";
import type { Devops } from "./devops/devops.ts";
import type { EventDelivery, EventGrid, ExpiryEvent } from "./event-grid.ts";
import type { ActiveFault, Fault, Faults } from "./faults.ts";
import type { DirectoryControl } from "./graph/directory-control.ts";
import type { TenantsControl } from "./graph/tenants-control.ts";
import type { OidcProvider } from "./idp/oidc.ts";
import type { OidcModeName } from "./idp/oidc-modes.ts";
import type { People, Person } from "./idp/people.ts";
import type { SamlProvider } from "./idp/saml.ts";
import type { SamlModeName } from "./idp/saml-modes.ts";
import type { PagerDuty } from "./incidents/pagerduty.ts";
import type { ServiceNow } from "./incidents/servicenow.ts";
import type { Ledger, LoggedRequest } from "./ledger.ts";
import type { Workspaces } from "./logs/workspaces.ts";
import type { KeptMail, Mails } from "./mail.ts";
import type { Providers } from "./providers/providers.ts";
import { current, type Version } from "./resources/items.ts";
import type { ItemChange, Resources } from "./resources/resources.ts";
import type { Tokens } from "./tokens.ts";
import type { Sinks, SunkRequest } from "./webhook-sink.ts";

export interface ControlParts {
  devops: Devops;
  resources: Resources;
  faults: Faults;
  ledger: Ledger;
  mails: Mails;
  sinks: Sinks;
  pagerDuty: PagerDuty;
  serviceNow: ServiceNow;
  appConfiguration: AppConfiguration;
  authorization: Authorization;
  people: People;
  oidc: OidcProvider;
  saml: SamlProvider;
  tokens: Tokens;
  api: ApiTokens;
  directory: DirectoryControl;
  consumers: ConsumersControl;
  tenants: TenantsControl;
  clock: CloudClock;
  events: EventGrid;
  providers: Providers;
  workspaces: Workspaces;
}

/** A vault as the control API counts it; `managed` secrets and keys are not among the numbers. */
export interface VaultSummary {
  name: string;
  subscriptionId: string;
  reach: NonNullable<CompanyVault["reach"]>;
  secrets: number;
  keys: number;
  certificates: number;
}

/** One thing in a vault, without its value. */
export interface ItemSummary {
  name: string;
  version: string;
  enabled: boolean;
  created: string;
  updated: string;
  notBefore?: string;
  expires?: string;
  tags?: Record<string, string>;
}

/**
 * What a test, or a person trying something out, can see and do behind the cloud's back. The same operations are served
 * over HTTP by `control-api.ts`.
 */
export class Control {
  readonly #parts: ControlParts;

  /** The tenant's applications. */
  readonly directory: DirectoryControl;
  /** The organization of Azure DevOps. */
  readonly devops: Devops;

  /** The company's resources beside its vaults. */
  readonly consumers: ConsumersControl;
  /** The company's other tenants. */
  readonly tenants: TenantsControl;

  constructor(parts: ControlParts) {
    this.#parts = parts;
    this.directory = parts.directory;
    this.devops = parts.devops;
    this.consumers = parts.consumers;
    this.tenants = parts.tenants;
  }

  /** ISO 8601. Of applications, their secrets and what is written to vaults; tokens go by the machine's time. */
  now(): string {
    return new Date(this.#parts.clock.now()).toISOString();
  }

  /** Moves that time ahead. */
  moveClock(milliseconds: number): void {
    this.#parts.clock.move(milliseconds);
  }

  /** Requests so far by operation, with `total`. */
  counts(): Record<string, number> {
    return this.#parts.ledger.counts();
  }

  /** Forgets counts and requests. */
  resetCounts(): void {
    this.#parts.ledger.reset();
  }

  /** The latest requests, oldest first. */
  requests(filter?: Parameters<Ledger["requests"]>[0]): LoggedRequest[] {
    return this.#parts.ledger.requests(filter);
  }

  /** What reached `evil.localhost`, the host no client may be led to. */
  foreignRequests(): LoggedRequest[] {
    return this.#parts.ledger.requests({ host: "evil.localhost" });
  }

  /** @returns the fault's id */
  addFault(fault: Fault): string {
    return this.#parts.faults.add(fault);
  }

  removeFault(id: string): boolean {
    return this.#parts.faults.remove(id);
  }

  clearFaults(): void {
    this.#parts.faults.clear();
  }

  faults(): ActiveFault[] {
    return this.#parts.faults.list();
  }

  subscriptions(): { id: string; name: string; denied: boolean; vaults: number }[] {
    return [...this.#parts.resources.subscriptions.values()].map(({ id, declared, vaults }) => {
      return { id, name: declared.name, denied: declared.denied ?? false, vaults: vaults.size };
    });
  }

  vaults(): VaultSummary[] {
    return [...this.#parts.resources.vaults.values()].map(({ name, subscriptionId, settings, collections }) => ({
      name,
      subscriptionId,
      reach: settings.reach ?? "open",
      secrets: collections.secrets.size,
      keys: collections.keys.size,
      certificates: collections.certificates.size,
    }));
  }

  /** Everything of a kind in a vault. @throws {Error} when there is no such vault. */
  items(vault: string, kind: AssetKind): ItemSummary[] {
    const owner = this.#parts.resources.vault(vault);
    if (owner === undefined) throw new Error(`No vault ${vault}`);
    return [...owner.collections[kind]].map((item) => {
      const version = current<Version>(item as { name: string; versions: Version[] });
      const { id, enabled, created, updated, notBefore, expires, tags } = version;
      return {
        name: item.name,
        version: id,
        enabled,
        created: instant(created),
        updated: instant(updated),
        ...(notBefore !== undefined && { notBefore: instant(notBefore) }),
        ...(expires !== undefined && { expires: instant(expires) }),
        ...(tags !== undefined && { tags }),
      };
    });
  }

  /** The current value of a secret; undefined when there is none. */
  secretValue(vault: string, name: string): string | undefined {
    const secret = this.#parts.resources.vault(vault)?.collections.secrets.get(name);
    return secret === undefined ? undefined : current(secret).value;
  }

  /** Adds a subscription, or changes its settings and adds the vaults and resources it names. @returns its id */
  putSubscription(declared: CompanySubscription): string {
    const id = this.#parts.resources.putSubscription(declared);
    for (const resource of declared.resources ?? []) this.consumers.put(id, resource);
    return id;
  }

  /** With all its vaults. */
  removeSubscription(id: string): boolean {
    return this.#parts.resources.removeSubscription(id);
  }

  /** Adds a vault, or replaces it with all it holds. */
  putVault(subscriptionId: string, declared: CompanyVault): void {
    this.#parts.resources.putVault(subscriptionId, declared);
  }

  /** Changes settings of a vault and leaves its contents. */
  changeVault(name: string, settings: Partial<Omit<CompanyVault, AssetKind | "generate" | "name">>): boolean {
    return this.#parts.resources.changeVault(name, settings);
  }

  removeVault(name: string): boolean {
    return this.#parts.resources.removeVault(name);
  }

  /** A new secret, or a new version of it; days are counted from now. */
  putSecret(vault: string, secret: CompanySecret): void {
    this.#parts.resources.put(vault, "secrets", secret);
  }

  putKey(vault: string, key: CompanyKey): void {
    this.#parts.resources.put(vault, "keys", key);
  }

  putCertificate(vault: string, certificate: CompanyCertificate): void {
    this.#parts.resources.put(vault, "certificates", certificate);
  }

  /** Changes the current version of a thing; false when there is none. */
  change(vault: string, kind: AssetKind, name: string, change: ItemChange): boolean {
    return this.#parts.resources.change(vault, kind, name, change);
  }

  /** Changes a key's rotation policy, which changes nothing in its list entry; undefined sets the default again. */
  setRotation(vault: string, key: string, rotation: CompanyKey["rotation"]): boolean {
    return this.#parts.resources.setRotation(vault, key, rotation);
  }

  /** Changes what a certificate's policy does before it expires, which changes nothing in its list entry. */
  setRenewal(vault: string, certificate: string, renewal: NonNullable<CompanyCertificate["renewal"]>): boolean {
    return this.#parts.resources.setRenewal(vault, certificate, renewal);
  }

  /** For good, as if purged. */
  remove(vault: string, kind: AssetKind, name: string): boolean {
    return this.#parts.resources.remove(vault, kind, name);
  }

  /** From now on Event Grid delivers the events of vaults and of the resource manager there; undefined: to nobody. */
  async deliverEvents(delivery: EventDelivery | undefined): Promise<void> {
    await this.#parts.events.deliver(delivery);
  }

  /** Sends the event that something in a vault is about to expire, or has. @throws {Error} when there is no such thing. */
  sendExpiry(vault: string, kind: AssetKind, name: string, event: ExpiryEvent): void {
    const owner = this.#parts.resources.vault(vault);
    if (owner === undefined) throw new Error(`No vault ${vault}`);
    this.#parts.events.expiry(owner, kind, name, event);
  }

  /** How many events were delivered, copies too, and how many could not be; waits for those under way. */
  async eventCounts(): Promise<{ delivered: number; lost: number }> {
    return await this.#parts.events.counts();
  }

  /** Mails that were accepted, oldest first. */
  mails(): KeptMail[] {
    return this.#parts.mails.list();
  }

  clearMails(): void {
    this.#parts.mails.clear();
  }

  /** From now on tokens are good for what these roles allow and for nothing else; undefined: for everything again. */
  allowOnly(assignments: readonly Assignment[] | undefined): void {
    this.#parts.authorization.allowOnly(assignments);
  }

  /** The id of a vault as a scope; undefined when there is none. */
  vaultId(name: string): string | undefined {
    return this.#parts.resources.vault(name)?.id;
  }

  /** Sets a value in App Configuration; undefined removes it. */
  setConfiguration(key: string, value: string | undefined, label: string | null = null): void {
    this.#parts.appConfiguration.set(key, value, label);
  }

  /** What was posted to `/sink/<name>`, oldest first. */
  sunk(name: string): SunkRequest[] {
    return this.#parts.sinks.list(name);
  }

  clearSink(name: string): void {
    this.#parts.sinks.clear(name);
  }

  /** The Log Analytics workspaces, and what lies in them. */
  get logs(): Workspaces {
    return this.#parts.workspaces;
  }

  /** What PagerDuty got at `/pagerduty/v2/enqueue` on the control port. */
  get pagerDuty(): PagerDuty {
    return this.#parts.pagerDuty;
  }

  /** What a ServiceNow instance has, at `/servicenow` on the control port. */
  get serviceNow(): ServiceNow {
    return this.#parts.serviceNow;
  }

  /** The other clouds that secrets are copied to. */
  get providers(): Providers {
    return this.#parts.providers;
  }

  /** Who can sign in with the identity providers. */
  people(): Person[] {
    return this.#parts.people.list();
  }

  /** False when there is nobody with that id. */
  changePerson(id: string, change: Partial<Omit<Person, "id">>): boolean {
    return this.#parts.people.change(id, change);
  }

  oidcMode(): OidcModeName {
    return this.#parts.oidc.mode;
  }

  /** From now on the OIDC provider makes this mistake; `correct`: none. */
  setOidcMode(mode: OidcModeName): void {
    this.#parts.oidc.setMode(mode);
  }

  /** From now on the OIDC provider signs with a new key and publishes that one alone. */
  rollOidcKeys(): void {
    this.#parts.oidc.rollKeys();
  }

  samlMode(): SamlModeName {
    return this.#parts.saml.mode;
  }

  /** From now on the SAML provider makes this mistake; `correct`: none. */
  setSamlMode(mode: SamlModeName): void {
    this.#parts.saml.setMode(mode);
  }

  /** Registers a service provider with the SAML provider, or replaces it, by its metadata. @returns Its entity id. */
  registerSamlServiceProvider(metadata: string): Promise<string> {
    return this.#parts.saml.register(metadata);
  }

  /** From now on the SAML provider signs with a new key; its metadata has both certificates. */
  rollSamlKeys(): void {
    this.#parts.saml.rollKeys();
  }

  /** From now on Entra signs with a new key. The one before it stays published, older ones don't. */
  rollEntraKeys(): void {
    this.#parts.tokens.rollKeys();
  }

  /** How the service is registered as an API: its tokens' version, and the app roles that applications have. */
  registerApi(version: 1 | 2, roles: readonly string[]): void {
    this.#parts.api.register(version, roles);
  }

  /** An access token of Entra for the service's API. */
  async apiToken(request: ApiTokenRequest = {}): Promise<string> {
    return await this.#parts.api.make(request);
  }
}

const instant = (seconds: number) => new Date(seconds * 1000).toISOString();
