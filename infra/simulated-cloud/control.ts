import { X509Certificate } from "node:crypto";
import type { AcmeAuthority } from "./acme/acme-authority.ts";
import type { ApiTokenRequest, ApiTokens } from "./api-tokens.ts";
import type { AppConfiguration } from "./app-configuration.ts";
import type { ConsumersControl } from "./arm/consumers.ts";
import type { GovernanceStore } from "./arm/governance.ts";
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
import type { Databases } from "./databases.ts";
import type { Devops } from "./devops/devops.ts";
import type { NameServer } from "./dns/name-server.ts";
import type { DnsZones } from "./dns/zones.ts";
import type { EventDelivery, EventGrid, ExpiryEvent } from "./event-grid.ts";
import type { EventHubs } from "./event-hubs.ts";
import type { ActiveFault, Fault, Faults } from "./faults.ts";
import type { DirectoryControl } from "./graph/directory-control.ts";
import type { TenantsControl } from "./graph/tenants-control.ts";
import type { LogoutTokenChange } from "./idp/logout-tokens.ts";
import type { OidcProvider } from "./idp/oidc.ts";
import type { OidcModeName } from "./idp/oidc-modes.ts";
import type { People, Person } from "./idp/people.ts";
import type { SamlProvider } from "./idp/saml.ts";
import type { SamlLogoutRequest } from "./idp/saml-logout.ts";
import type { SamlModeName } from "./idp/saml-modes.ts";
import type { PagerDuty } from "./incidents/pagerduty.ts";
import type { ServiceNow } from "./incidents/servicenow.ts";
import type { KeyVaultTraffic } from "./key-vault/traffic.ts";
import type { LogsIngestion } from "./logs/logs-ingestion.ts";
import type { Workspaces } from "./logs/workspaces.ts";
import type { Mails, StoredMail } from "./mail.ts";
import type { Providers } from "./providers/providers.ts";
import type { LoggedRequest, RequestLog } from "./request-log.ts";
import type { Tokens, WorkloadClaims } from "./tokens.ts";
import type { CertificatePolicyJson } from "./vaults/items.ts";
import { current, type Version } from "./vaults/items.ts";
import type { ItemChange, VaultStore } from "./vaults/vault-store.ts";
import type { ReceivedRequest, WebhookSinks } from "./webhook-sink.ts";

/** The parts of the cloud whose state the control operations read and change. */
export interface ControlParts {
  databases: Databases;
  devops: Devops;
  governance: GovernanceStore;
  resources: VaultStore;
  faults: Faults;
  requestLog: RequestLog;
  traffic: KeyVaultTraffic;
  mails: Mails;
  sinks: WebhookSinks;
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
  logsIngestion: LogsIngestion;
  eventHubs: EventHubs;
  acmeAuthority: AcmeAuthority;
  /** An authority that needs an external account binding. */
  boundAuthority: AcmeAuthority;
  zones: DnsZones;
  nameServer: NameServer;
}

/** A vault with its numbers of items. Secrets and keys that belong to a certificate are not counted. */
export interface VaultSummary {
  name: string;
  subscriptionId: string;
  reach: NonNullable<CompanyVault["reach"]>;
  secrets: number;
  keys: number;
  certificates: number;
}

/** An item in a vault, without its value. */
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
 * Control operations of the simulated cloud: tests read and change state that no client of Azure can, and add faults.
 * `control-api.ts` offers the same operations over HTTP. An item is a secret, key or certificate.
 */
export class Control {
  readonly #parts: ControlParts;

  /** Applications of the service's tenant. */
  readonly directory: DirectoryControl;
  /** The Azure DevOps organization. */
  readonly devops: Devops;

  /** Rules of the subscriptions for deployments: permissions, policies, locks, names. */
  readonly governance: GovernanceStore;
  /** Names of database servers, and faults of their connections. */
  readonly databases: Databases;

  /** The company's resources other than vaults. */
  readonly consumers: ConsumersControl;
  /** Other tenants of the company. */
  readonly tenants: TenantsControl;
  /** The public certificate authority. */
  readonly acmeAuthority: AcmeAuthority;
  /** The table behind the data collection rule. */
  readonly logsIngestion: LogsIngestion;
  /** The event hub. */
  readonly eventHubs: EventHubs;
  /** A certificate authority that needs an external account binding. */
  readonly boundAuthority: AcmeAuthority;
  /** DNS zones, and the name server that answers for them. */
  readonly zones: DnsZones;
  readonly nameServer: NameServer;

  constructor(parts: ControlParts) {
    this.#parts = parts;
    this.directory = parts.directory;
    this.devops = parts.devops;
    this.governance = parts.governance;
    this.databases = parts.databases;
    this.consumers = parts.consumers;
    this.tenants = parts.tenants;
    this.acmeAuthority = parts.acmeAuthority;
    this.logsIngestion = parts.logsIngestion;
    this.eventHubs = parts.eventHubs;
    this.boundAuthority = parts.boundAuthority;
    this.zones = parts.zones;
    this.nameServer = parts.nameServer;
  }

  /**
   * The simulated time, ISO 8601. It applies to applications, their secrets and writes to vaults. Tokens use the machine's
   * time.
   */
  now(): string {
    return new Date(this.#parts.clock.now()).toISOString();
  }

  /** Moves the simulated time ahead. */
  moveClock(milliseconds: number): void {
    this.#parts.clock.move(milliseconds);
  }

  /** Returns the status of the last operation of a certificate, and the serial numbers of its versions, oldest first. */
  certificateState(vault: string, name: string): { pending: string | undefined; serials: string[] } {
    const { resources } = this.#parts;
    const found = resources.vault(vault);
    const versions = found?.collections.certificates.get(name)?.versions ?? [];
    const ders = versions.flatMap(({ der }) => (der === undefined ? [] : [Buffer.from(der, "base64")]));
    return {
      pending: found?.certificateOperations.get(name.toLowerCase())?.status,
      serials: ders.map((der) => new X509Certificate(der).serialNumber),
    };
  }

  /** Returns the policy that a request, or the next function, set for a certificate. */
  certificatePolicy(vault: string, name: string): CertificatePolicyJson | undefined {
    return this.#parts.resources.vault(vault)?.collections.certificates.get(name)?.policy;
  }

  setCertificatePolicy(vault: string, name: string, policy: CertificatePolicyJson): void {
    const { resources } = this.#parts;
    const certificate = resources.vault(vault)!.collections.certificates.get(name)!;
    resources.putItem(vault, "certificates", { ...certificate, policy });
  }

  /** Returns the number of requests by operation, with `total`. */
  counts(): Record<string, number> {
    return this.#parts.requestLog.counts();
  }

  /** Returns the requests in the busiest ten seconds of each vault and region: see `KeyVaultTraffic`. */
  busiestTenSeconds(): Record<string, number> {
    return this.#parts.traffic.busiest();
  }

  /** Clears counts and recorded requests. */
  resetCounts(): void {
    this.#parts.traffic.reset();
    this.#parts.requestLog.reset();
  }

  /** Returns the latest requests, oldest first. */
  requests(filter?: Parameters<RequestLog["requests"]>[0]): LoggedRequest[] {
    return this.#parts.requestLog.requests(filter);
  }

  /** Returns the requests that reached `evil.localhost`. Clients must never follow a link to this host. */
  foreignRequests(): LoggedRequest[] {
    return this.#parts.requestLog.requests({ host: "evil.localhost" });
  }

  /**
   * Adds a fault.
   * @returns the fault's ID
   */
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

  /**
   * Lists the items of a kind in a vault.
   * @throws {Error} if there is no such vault.
   */
  items(vault: string, kind: AssetKind): ItemSummary[] {
    const owner = this.#parts.resources.vault(vault);
    if (owner === undefined) throw new Error(`Unknown vault ${vault}`);
    return [...owner.collections[kind]].map((item) => {
      const version = current<Version>(item as { name: string; versions: Version[] });
      const { id, enabled, created, updated, notBefore, expires, tags } = version;
      return {
        name: item.name,
        version: id,
        enabled,
        created: toIso(created),
        updated: toIso(updated),
        ...(notBefore !== undefined && { notBefore: toIso(notBefore) }),
        ...(expires !== undefined && { expires: toIso(expires) }),
        ...(tags !== undefined && { tags }),
      };
    });
  }

  /** Returns the current value of a secret. Undefined if there is none. */
  secretValue(vault: string, name: string): string | undefined {
    const secret = this.#parts.resources.vault(vault)?.collections.secrets.get(name);
    return secret === undefined ? undefined : current(secret).value;
  }

  /**
   * Adds a subscription, or changes its settings and adds the vaults and resources it declares.
   * @returns its ID
   */
  putSubscription(declared: CompanySubscription): string {
    const id = this.#parts.resources.putSubscription(declared);
    for (const resource of declared.resources ?? []) this.consumers.put(id, resource);
    return id;
  }

  /** Removes a subscription with all its vaults. */
  removeSubscription(id: string): boolean {
    return this.#parts.resources.removeSubscription(id);
  }

  /** Adds a vault. An existing vault of this name is replaced, with its items. */
  putVault(subscriptionId: string, declared: CompanyVault): void {
    this.#parts.resources.putVault(subscriptionId, declared);
  }

  /** Changes settings of a vault. Its items stay. */
  changeVault(name: string, settings: Partial<Omit<CompanyVault, AssetKind | "generate" | "name">>): boolean {
    return this.#parts.resources.changeVault(name, settings);
  }

  removeVault(name: string): boolean {
    return this.#parts.resources.removeVault(name);
  }

  /** Adds a secret, or a new version of an existing secret. Days in the declaration count from now. */
  putSecret(vault: string, secret: CompanySecret): void {
    this.#parts.resources.put(vault, "secrets", secret);
  }

  putKey(vault: string, key: CompanyKey): void {
    this.#parts.resources.put(vault, "keys", key);
  }

  putCertificate(vault: string, certificate: CompanyCertificate): void {
    this.#parts.resources.put(vault, "certificates", certificate);
  }

  /** Returns the versions of a key, oldest first. Undefined if there is no such key. */
  keyVersions(vault: string, name: string): string[] | undefined {
    return this.#parts.resources
      .vault(vault)
      ?.collections.keys.get(name)
      ?.versions.map(({ id }) => id);
  }

  /** Changes the current version of an item. Returns false if there is no such item. */
  change(vault: string, kind: AssetKind, name: string, change: ItemChange): boolean {
    return this.#parts.resources.change(vault, kind, name, change);
  }

  /**
   * Changes a key's rotation policy. The key's entry in lists of keys and its `updated` date do not change. Undefined restores
   * the default policy.
   */
  setRotation(vault: string, key: string, rotation: CompanyKey["rotation"]): boolean {
    return this.#parts.resources.setRotation(vault, key, rotation);
  }

  /** Changes the action of a certificate's policy before expiry. The entry in lists and its `updated` date do not change. */
  setRenewal(vault: string, certificate: string, renewal: NonNullable<CompanyCertificate["renewal"]>): boolean {
    return this.#parts.resources.setRenewal(vault, certificate, renewal);
  }

  /** Deletes an item permanently. Returns false if there is no such item. */
  remove(vault: string, kind: AssetKind, name: string): boolean {
    return this.#parts.resources.remove(vault, kind, name);
  }

  /** Sets the queue to which Event Grid delivers the events of vaults and subscriptions. Undefined stops the delivery. */
  async deliverEvents(delivery: EventDelivery | undefined): Promise<void> {
    await this.#parts.events.deliver(delivery);
  }

  /**
   * Sends the event that an item is about to expire or has expired.
   * @throws {Error} if there is no such item.
   */
  sendExpiry(vault: string, kind: AssetKind, name: string, event: ExpiryEvent): void {
    const owner = this.#parts.resources.vault(vault);
    if (owner === undefined) throw new Error(`Unknown vault ${vault}`);
    this.#parts.events.sendExpiry(owner, kind, name, event);
  }

  /** Returns the number of delivered events (with duplicates) and of failed deliveries. Waits for deliveries in progress. */
  async eventCounts(): Promise<{ delivered: number; lost: number }> {
    return await this.#parts.events.counts();
  }

  /** Returns the accepted mails, oldest first. */
  mails(): StoredMail[] {
    return this.#parts.mails.list();
  }

  clearMails(): void {
    this.#parts.mails.clear();
  }

  /** Limits the service to the actions that these role assignments allow. Undefined removes the limit. */
  allowOnly(assignments: readonly Assignment[] | undefined): void {
    this.#parts.authorization.allowOnly(assignments);
  }

  /** Returns a vault's resource ID, for use as a scope. Undefined if there is no such vault. */
  vaultId(name: string): string | undefined {
    return this.#parts.resources.vault(name)?.id;
  }

  /** Sets a value in App Configuration. Undefined removes it. */
  setConfiguration(key: string, value: string | undefined, label: string | null = null): void {
    this.#parts.appConfiguration.set(key, value, label);
  }

  /** Returns the requests to `/sink/<name>`, oldest first. */
  sinkRequests(name: string): ReceivedRequest[] {
    return this.#parts.sinks.list(name);
  }

  clearSink(name: string): void {
    this.#parts.sinks.clear(name);
  }

  /** The Log Analytics workspaces and their events. */
  get logs(): Workspaces {
    return this.#parts.workspaces;
  }

  /** Returns the events and alerts that PagerDuty received at `/pagerduty/v2/enqueue` on the control port. */
  get pagerDuty(): PagerDuty {
    return this.#parts.pagerDuty;
  }

  /** Returns the incidents of the ServiceNow instance at `/servicenow` on the control port. */
  get serviceNow(): ServiceNow {
    return this.#parts.serviceNow;
  }

  /** The providers that secrets are synced to. */
  get providers(): Providers {
    return this.#parts.providers;
  }

  /** The people who can sign in with the identity providers. */
  people(): Person[] {
    return this.#parts.people.list();
  }

  /** Changes a person. Returns false if the ID is unknown. */
  changePerson(id: string, change: Partial<Omit<Person, "id">>): boolean {
    return this.#parts.people.change(id, change);
  }

  oidcMode(): OidcModeName {
    return this.#parts.oidc.mode;
  }

  /** Makes the OIDC provider misbehave in one way. `correct` ends the misbehavior. */
  setOidcMode(mode: OidcModeName): void {
    this.#parts.oidc.setMode(mode);
  }

  /** Makes the OIDC provider sign with a new key and publish only the new key. */
  rollOidcKeys(): void {
    this.#parts.oidc.rollKeys();
  }

  /** Registers the URL that the OIDC provider calls when a session ends. Undefined: none. */
  setOidcBackchannelLogoutUri(uri: string | undefined): void {
    this.#parts.oidc.setBackchannelLogoutUri(uri);
  }

  /** Returns a logout token of the OIDC provider, with changes that make it invalid. */
  oidcLogoutToken(session: { sub?: string; sid?: string }, change?: LogoutTokenChange): Promise<string> {
    return this.#parts.oidc.logoutToken(session, change);
  }

  /** Returns the URL with a signed LogoutRequest of the SAML provider, which ends a session at the service provider. */
  samlLogoutRequestUrl(serviceProvider: string, request: SamlLogoutRequest): string {
    return this.#parts.saml.logoutRequestUrl(serviceProvider, request);
  }

  samlMode(): SamlModeName {
    return this.#parts.saml.mode;
  }

  /** Makes the SAML provider misbehave in one way. `correct` ends the misbehavior. */
  setSamlMode(mode: SamlModeName): void {
    this.#parts.saml.setMode(mode);
  }

  /**
   * Registers a service provider with the SAML provider by its metadata, or replaces it.
   * @returns its entity ID
   */
  registerSamlServiceProvider(metadata: string): Promise<string> {
    return this.#parts.saml.register(metadata);
  }

  /** Makes the SAML provider sign with a new key. Its metadata contains the old and the new certificate. */
  rollSamlKeys(): void {
    this.#parts.saml.rollKeys();
  }

  /** Makes Entra sign with a new key. Only the previous one of the older keys stays published. */
  rollEntraKeys(): void {
    this.#parts.tokens.rollKeys();
  }

  /** Issues a token of a workload on any platform, for an exchange at Microsoft Entra ID. */
  workloadToken(claims: WorkloadClaims): string {
    return this.#parts.tokens.workloadToken(claims);
  }

  /** Changes the service's API registration: the version of its tokens, and the app roles of applications. */
  registerApi(version: 1 | 2, roles: readonly string[]): void {
    this.#parts.api.register(version, roles);
  }

  /** Returns an Entra access token for the service's API. */
  async apiToken(request: ApiTokenRequest = {}): Promise<string> {
    return await this.#parts.api.createToken(request);
  }
}

const toIso = (seconds: number) => new Date(seconds * 1000).toISOString();
