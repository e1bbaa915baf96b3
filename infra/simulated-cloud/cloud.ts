// Starts the simulated cloud, against which tests and `npm start` run the service: creates its services and listens on its
// ports.

import { cpSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer as createHttpServer, type RequestListener, type Server } from "node:http";
import { createServer as createTlsServer } from "node:https";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { AcmeAuthority } from "./acme/acme-authority.ts";
import { AcmeServer, type AcmeServerOptions } from "./acme/acme-server.ts";
import { ApiTokens } from "./api-tokens.ts";
import { AppConfiguration, CONFIGURATION_AUDIENCE } from "./app-configuration.ts";
import { ConfigurationStores } from "./arm/configuration-stores.ts";
import { Consumers, ConsumersControl } from "./arm/consumers.ts";
import { GovernanceStore } from "./arm/governance.ts";
import { KEY_SERVICE_DOMAINS, KeyServices, MAPS_HOST } from "./arm/key-services.ts";
import { Operations } from "./arm/operations.ts";
import { isKeyChange, ResourceKeys } from "./arm/resource-keys.ts";
import { arm } from "./arm/resource-manager.ts";
import { ArmStore } from "./arm/resource-store.ts";
import { Authorization } from "./authorization.ts";
import { CloudClock } from "./clock.ts";
import type { Company } from "./company/company.ts";
import { type CompanyChoice, companyFromArgument, resolveCompany } from "./company/load-company.ts";
import { Control } from "./control.ts";
import { controlApi } from "./control-api.ts";
import { type CloudState, DataFolder } from "./data-folder.ts";
import { DATABASE_AUDIENCE, Databases, POSTGRESQL_DOMAIN } from "./databases.ts";
import { DEVOPS_AUDIENCE, Devops } from "./devops/devops.ts";
import { Organization } from "./devops/organization.ts";
import { startNameServer } from "./dns/name-server.ts";
import { DnsZones } from "./dns/zones.ts";
import { type AppRegistration, entra } from "./entra.ts";
import { EventGrid } from "./event-grid.ts";
import { EVENT_HUBS_AUDIENCE, EVENT_HUBS_HOST, EventHubs } from "./event-hubs.ts";
import { Faults } from "./faults.ts";
import { Directory, isDirectoryChange } from "./graph/directory.ts";
import { DirectoryControl } from "./graph/directory-control.ts";
import { graph } from "./graph/graph.ts";
import { Tenants } from "./graph/tenants.ts";
import { TenantsControl } from "./graph/tenants-control.ts";
import { Targets } from "./graph/watched-secrets.ts";
import type { IncomingRequest, Service } from "./http.ts";
import { readRequest, send } from "./http.ts";
import { type OidcClient, OidcProvider } from "./idp/oidc.ts";
import { People } from "./idp/people.ts";
import { SamlProvider } from "./idp/saml.ts";
import { identityProviders } from "./idp/server.ts";
import { PagerDuty } from "./incidents/pagerduty.ts";
import { ServiceNow } from "./incidents/servicenow.ts";
import { keyVault } from "./key-vault/key-vault.ts";
import { KeyVaultTraffic } from "./key-vault/traffic.ts";
import { logAnalytics } from "./logs/log-analytics.ts";
import { INGESTION_AUDIENCE, INGESTION_DOMAIN, INGESTION_HOST, LogsIngestion } from "./logs/logs-ingestion.ts";
import { Workspaces } from "./logs/workspaces.ts";
import { MAIL_AUDIENCE, MAIL_DOMAIN, Mails } from "./mail.ts";
import { managedIdentityToken } from "./managed-identity.ts";
import { Providers } from "./providers/providers.ts";
import { RequestLog } from "./request-log.ts";
import { type ListenerOptions, listener } from "./server.ts";
import { serverCertificate } from "./tls.ts";
import { Tokens } from "./tokens.ts";
import { CertificateMaker } from "./vaults/certificates.ts";
import { guidFrom } from "./vaults/identifiers.ts";
import type { Vault } from "./vaults/vault.ts";
import { subscriptionId, VaultStore } from "./vaults/vault-store.ts";
import { WebhookSinks } from "./webhook-sink.ts";

/** Domain of vault host names. */
const VAULT_SUFFIX = "vault.localhost";
/** Vault of the service under test. It always exists, but lists contain it only if the company declares it. */
const SERVICE_VAULT = "kv-lifecycle-service";
/** ID of the access key of App Configuration, in its connection string. */
const CONFIGURATION_CREDENTIAL = "stand-in";

/** External account binding of the second ACME authority. */
const EXTERNAL_ACCOUNT = { kid: "acme-corporation", hmacKey: "c3RhbmQtaW4tbWFjLWtleS1vZi10aGUtZXh0ZXJuYWwtYWNjb3VudA" };

/** Azure keeps idle connections open for minutes. Node's default of 5 seconds would close connections between two requests. */
const KEEP_ALIVE_MS = 120_000;

export interface CloudOptions {
  /** Folder that stores the cloud's state across restarts. Default: a temporary folder that is deleted when the cloud stops. */
  data?: string;
  /** Folder that `createKeys` filled. A temporary folder starts with its keys. Default: new keys, which take 250 ms. */
  keys?: string;
  /**
   * The company (the sample data): a declaration, or the text of the option --company. Default: the company of the last start,
   * else `acme`.
   */
  company?: CompanyChoice | string;
  /** Seed of random sample data. */
  seed?: number;
  /** Ports to listen on. Default: the ports of the last start if they are free, else any free port. */
  port?: number;
  controlPort?: number;
  /** Lifetime of tokens in seconds. Default 3600. */
  tokenLifetimeSeconds?: number;
  /** Entries per page of lists of Azure Resource Manager. Default 100. */
  pageSizes?: { subscriptions?: number; vaults?: number };
}

/** A running simulated cloud. */
export interface Cloud {
  /** The environment variables that a process needs to use this cloud. */
  environment: Record<string, string>;
  controlUrl: string;
  /** Operations that read and change the state of the cloud, for tests. */
  control: Control;
  /** Number of TLS handshakes by host. A test can clear the map. */
  handshakes: Map<string, number>;
  /** An application with a secret, for clients that do not use the managed identity. */
  app: AppRegistration & { tenantId: string };
  /** The IDs of the Log Analytics workspaces, for LOG_ANALYTICS_WORKSPACE_IDS. */
  workspaceIds: string[];
  /** The OIDC provider of the company: its issuer, and the service's client registration. */
  oidc: { issuer: string } & OidcClient;
  /** The SAML provider of the company. Its metadata contains everything that the service needs. */
  saml: { metadata(): string };
  /** Closes all ports. Deletes the data folder if it is a temporary one. */
  stop(): Promise<void>;
}

/** Creates keys and certificates in a folder. Several clouds can start with them (`CloudOptions.keys`). */
export function createKeys(folder: string): void {
  new DataFolder(folder).signingKey();
  serverCertificate(folder);
}

/** Returns the tenant of the company, in which the service and the monitored applications are. */
const ownTenant = (id: string, directory: Directory) => ({
  id,
  name: "Acme",
  domain: "acme.example",
  type: "AAD" as const,
  directory,
  keySets: [],
  identityProviders: [],
});

/**
 * Starts a simulated cloud in this process. Port 1 serves TLS under names that end in `.localhost`: Entra, Azure Resource
 * Manager, Microsoft Graph, Key Vault, Communication Services e-mail, App Configuration, Azure DevOps and the other clouds that
 * secrets are synced to. Port 2 is plain HTTP: the managed identity endpoint, webhook sinks, PagerDuty, ServiceNow and the
 * control API. Port 3 is the company's identity provider, port 4 the API server of a Kubernetes cluster.
 * @returns the running cloud, with the environment variables for its clients and its control operations
 */
export async function startCloud(options: CloudOptions = {}): Promise<Cloud> {
  const temporary = options.data === undefined ? mkdtempSync(join(tmpdir(), "stand-in-cloud-")) : undefined;
  if (temporary !== undefined && options.keys !== undefined) cpSync(options.keys, temporary, { recursive: true });
  const folder = new DataFolder(options.data ?? temporary!);
  const chosenCompany = typeof options.company === "string" ? companyFromArgument(options.company) : options.company;
  const state = folder.state(chosenCompany, options.seed);
  const signingKey = folder.signingKey();
  const certificate = serverCertificate(folder.path);

  const [company, clock, changes] = [resolveCompany(state.company, state.seed), new CloudClock(), folder.changes()];
  const resources = new VaultStore(company, state.base, clock);
  if (resources.vault(SERVICE_VAULT) === undefined) resources.addUnlisted({ name: SERVICE_VAULT });
  resources.restore(
    changes.filter((change) => !isDirectoryChange(change) && !isKeyChange(change)),
    folder.writeChange,
  );
  const directory = new Directory({
    applications: company.applications ?? [],
    base: state.base,
    clock,
    service: [state.identity, state.app],
  });
  directory.restore(changes.filter(isDirectoryChange), folder.writeChange);
  const [faults, requestLog, sinks] = [new Faults(), new RequestLog(), new WebhookSinks()];
  const workspaces = new Workspaces(clock);
  const traffic = new KeyVaultTraffic();
  const [pagerDuty, serviceNow] = [new PagerDuty(), new ServiceNow()];
  const authorization = new Authorization(resources);
  const tokens = new Tokens(signingKey, state.tenantId, options.tokenLifetimeSeconds ?? 3600);
  const mails = new Mails(Buffer.from(state.mailKey, "base64"), tokens, join(folder.path, "mails"));
  const appConfiguration = new AppConfiguration(
    (credential) =>
      credential === CONFIGURATION_CREDENTIAL ? Buffer.from(state.configurationKey, "base64") : undefined,
    tokens,
  );
  const people = new People();

  const { issuer, oidc, saml, ...identityProvider } = await startIdentityProviders(state, {
    signingKey,
    people,
    faults,
    requestLog,
  });

  // The URLs contain the port, which is known only after the server listens. `services`, `stores` and `providers` are therefore
  // created below. Clients know no address before that.
  let services: Record<string, Service> = {};
  const listening: ListenerOptions = {
    authorization,
    faults,
    requestLog,
    foreignHost: () => `https://evil.localhost:${state.port}`,
    serviceFor: ({ host }) =>
      host.endsWith(`.${VAULT_SUFFIX}`)
        ? services[VAULT_SUFFIX]
        : (services[host] ?? stores.service(host) ?? keyServices.service(host)),
  };
  const tlsServer = createTlsServer({ key: certificate.key, cert: certificate.certificate }, listener(listening));
  const handshakes = new Map<string, number>();
  tlsServer.on("secureConnection", ({ servername }) => {
    if (servername) handshakes.set(servername, (handshakes.get(servername) ?? 0) + 1);
  });
  state.port = await listen(tlsServer, options.port, state.port);
  const origin = (host: string) => `https://${host}:${state.port}`;
  const [authority, resourceManagerUrl] = [origin("login.localhost"), origin("management.localhost")];
  const graphOrigin = origin("graph.localhost");
  const cluster = serverCertificate(join(folder.path, "kubernetes"));
  const kubernetesServer = createTlsServer(
    { key: cluster.key, cert: cluster.certificate },
    listener({ ...listening, serviceFor: () => providers.kubernetes.service }),
  );
  state.kubernetesPort = await listen(kubernetesServer, undefined, state.kubernetesPort);
  const providers = new Providers(state.providers, {
    origin,
    signingKey,
    kubernetes: {
      address: `https://kubernetes.localhost:${state.kubernetesPort}`,
      caCertificate: readFileSync(cluster.authorityPath, "utf8"),
    },
  });
  const tenants = new Tenants(ownTenant(state.tenantId, directory), company.tenants ?? [], { base: state.base, clock });
  tokens.roles.set(graphOrigin, ({ objectId }) => tenants.permissionsOf(objectId));
  const api = new ApiTokens({ tokens, people, clientId: state.apiClientId, authority });
  const targets = new Targets(directory, (vault, name) => control.secretValue(vault, name));
  const vaultUri = (vault: Vault) => `${origin(`${vault.name.toLowerCase()}.${VAULT_SUFFIX}`)}/`;
  const store = new ArmStore(company, { resources, clock, tenantId: state.tenantId, vaultUri, origin });
  const keys = new ResourceKeys(clock);
  keys.restore(changes.filter(isKeyChange), folder.writeChange);
  const stores = new ConfigurationStores(store, tokens, keys);
  const keyServices = new KeyServices(store, keys);
  const consumers = new Consumers(company, { resources, store, directory, clock });
  const events = new EventGrid({ clock, tenantId: state.tenantId, vaultUri });
  connectVaultStore(resources, { consumers, events, targets, workspaces, vaultUri });
  const devops = new Devops({
    organization: new Organization(company.devops ?? { organization: "acme", projects: [] }, state.tenantId),
    tokens,
    directory,
    members: [state.identity.objectId, state.app.objectId],
    origin: origin("devops.localhost"),
    foreignOrigin: () => listening.foreignHost(),
  });
  const zones = zonesOf(company);
  const nameServer = await startNameServer(zones, state.nameServerPort ?? 0);
  state.nameServerPort = nameServer.port;
  const acmeAuthorityOf = (options: Pick<AcmeServerOptions, "origin" | "binding">) =>
    new AcmeAuthority(options.origin, resources, new AcmeServer({ ...options, clock, zones, signingKey }));
  const acmeAuthority = acmeAuthorityOf({ origin: origin("letsencrypt.localhost") });
  const boundAuthority = acmeAuthorityOf({ origin: origin("zerossl.localhost"), binding: EXTERNAL_ACCOUNT });
  const governance = new GovernanceStore();
  const databases = new Databases(tokens, certificate);
  const [logsIngestion, eventHubs] = [new LogsIngestion(tokens), new EventHubs(tokens)];
  const control = new Control({
    databases,
    devops,
    governance,
    directory: new DirectoryControl(directory, targets),
    consumers: new ConsumersControl(consumers, { store, resources, requestLog, keys }),
    tenants: new TenantsControl(tenants, targets),
    clock,
    events,
    resources,
    authorization,
    faults,
    requestLog,
    traffic,
    mails,
    sinks,
    pagerDuty,
    serviceNow,
    appConfiguration,
    people,
    oidc,
    saml,
    tokens,
    api,
    providers,
    workspaces,
    logsIngestion,
    eventHubs,
    acmeAuthority,
    boundAuthority,
    zones,
    nameServer,
  });
  const audiences = [
    resourceManagerUrl,
    origin("loganalytics.localhost"),
    graphOrigin,
    `https://${VAULT_SUFFIX}`,
    MAIL_AUDIENCE,
    CONFIGURATION_AUDIENCE,
    DEVOPS_AUDIENCE,
    DATABASE_AUDIENCE,
    INGESTION_AUDIENCE,
    EVENT_HUBS_AUDIENCE,
  ];
  services = {
    "login.localhost": entra({
      tokens,
      api,
      origin: authority,
      resources: audiences,
      graph: graphOrigin,
      apps: [state.app],
      tenants,
      workspaces,
    }),
    "graph.localhost": graph({ tenants, tokens, origin: graphOrigin }),
    "management.localhost": arm({
      resources,
      authorization,
      tokens,
      origin: resourceManagerUrl,
      authority,
      vaultUri,
      store,
      consumers,
      operations: new Operations(),
      keys,
      originOf: origin,
      governance,
      zones,
      pageSizes: { subscriptions: 100, vaults: 100, ...options.pageSizes },
    }),
    [VAULT_SUFFIX]: keyVault({
      resources,
      tokens,
      certificates: new CertificateMaker(signingKey),
      suffix: VAULT_SUFFIX,
      authority,
      workspaces,
      traffic,
    }),
    "loganalytics.localhost": logAnalytics({ workspaces, tokens, origin: origin("loganalytics.localhost") }),
    [INGESTION_HOST]: logsIngestion.service,
    [EVENT_HUBS_HOST]: eventHubs.service,
    "acme.communication.localhost": mails.service,
    "acme.azconfig.localhost": appConfiguration.service,
    "devops.localhost": devops.service,
    "letsencrypt.localhost": acmeAuthority.service,
    "zerossl.localhost": boundAuthority.service,
    ...providers.services(),
  };

  const plainServer = createPlainServer(control, listening, (request) => {
    if (request.method === "GET" && request.path === "/msi/token") {
      const { identity, identityHeader: secret } = state;
      return managedIdentityToken({ tokens, api, secret, identity, resources: audiences }, request);
    }
    if (request.segments[0] === "sink") return sinks.operation(request);
    return pagerDuty.operation(request) ?? serviceNow.operation(request);
  });
  state.controlPort = await listen(plainServer, options.controlPort, state.controlPort);
  folder.writeState(state);

  return {
    environment: {
      AZURE_GRAPH_ENDPOINT: graphOrigin,
      AZURE_DEVOPS_ENDPOINT: origin("devops.localhost"),
      LOG_ANALYTICS_ENDPOINT: origin("loganalytics.localhost"),
      ARI_DIRECTORIES: acmeAuthority.setting,
      ...environment(state, certificate.authorityPath, authority, resourceManagerUrl, origin),
      ...providers.environment(),
      ACME_DNS_SERVERS: `127.0.0.1:${nameServer.port}`,
      ACME_DNS_ZONE_IDS: [...zones.zones.values()].map(({ id }) => id).join(","),
      PRIVATE_TARGET_HOSTS: [
        new URL(issuer).host,
        ...providers.privateHosts(),
        ...[acmeAuthority, boundAuthority].map(({ directory }) => new URL(directory).host),
      ].join(","),
    },
    controlUrl: `http://127.0.0.1:${state.controlPort}/control`,
    control,
    handshakes,
    app: { ...state.app, tenantId: state.tenantId },
    workspaceIds: workspaces.all.map(({ id }) => id),
    oidc: { issuer, ...state.oidcClient },
    saml: { metadata: () => saml.metadata() },
    async stop() {
      await events.waitUntilSent();
      await databases.stop();
      await nameServer.stop();
      await Promise.all([tlsServer, plainServer, identityProvider.server, kubernetesServer].map(close));
      if (temporary !== undefined) rmSync(temporary, { recursive: true, force: true });
    },
  };
}

/** Returns the DNS zones that the company declares. */
function zonesOf({ subscriptions }: Company): DnsZones {
  const zones = new DnsZones();
  for (const declared of subscriptions)
    for (const zone of declared.dnsZones ?? []) zones.addZone(zone, subscriptionId(declared));
  return zones;
}

/** Starts the company's identity providers on a port of their own. */
async function startIdentityProviders(
  state: CloudState,
  parts: { signingKey: ReturnType<DataFolder["signingKey"]>; people: People; faults: Faults; requestLog: RequestLog },
) {
  const { signingKey, people, faults, requestLog } = parts;
  // The providers need their port, so the server listens first.
  let answer: RequestListener = (_message, response) => response.destroy();
  const server = createHttpServer((message, response) => answer(message, response));
  state.identityProviderPort = await listen(server, undefined, state.identityProviderPort);
  // The address of the identity provider has the IP address, and the address of the service has the name `localhost`. A browser
  // then treats them as two sites, like a real service and its identity provider.
  const issuer = `http://127.0.0.1:${state.identityProviderPort}`;
  const oidc = new OidcProvider(issuer, state.oidcClient, people);
  const saml = new SamlProvider(issuer, people, signingKey);
  answer = identityProviders({ oidc, saml, faults, requestLog });
  return { server, issuer, oidc, saml };
}

/** Makes the vault store notify the other parts of the cloud of changes and reads: consumers, Event Grid, and the logs. */
function connectVaultStore(
  resources: VaultStore,
  parts: {
    consumers: Consumers;
    events: EventGrid;
    targets: Targets;
    workspaces: Workspaces;
    vaultUri(vault: Vault): string;
  },
): void {
  const { consumers, events, targets, workspaces, vaultUri } = parts;
  resources.beforeChange = () => consumers.runDueWork();
  resources.changed = (change) => events.sendChange(change);
  resources.secretChanged = (vault, name) => {
    targets.secretChanged(vault, name);
    consumers.timedReaders.secretChanged(vault, name);
  };
  resources.secretRead = (vault, name, version, objectId) => {
    const id = `${vaultUri(vault)}secrets/${name}/${version}`;
    workspaces.recordVaultRequest(vault.name, {
      operation: "SecretGet",
      vaultId: vault.id,
      id,
      requestUri: `${id}?api-version=7.4`,
      status: 200,
      objectId,
      appId: guidFrom(`client of ${objectId}`),
    });
  };
}

/** Creates the server of the plain HTTP port. It serves the control API, and the given service below all other paths. */
function createPlainServer(control: Control, listening: ListenerOptions, service: Service): Server {
  const plainListener = listener({ ...listening, serviceFor: () => service });
  return createHttpServer((message, response) => {
    if (message.url?.startsWith("/control/") !== true) return plainListener(message, response);
    readRequest(message)
      .then(async (request) => send(response, await runControlRequest(control, request)))
      .catch((error: unknown) => response.destroy(error instanceof Error ? error : undefined));
  });
}

/** Runs a request of the control API. An error is returned as status 400. */
async function runControlRequest(control: Control, request: IncomingRequest) {
  try {
    return await controlApi(control, request);
  } catch (error) {
    return { status: 400, body: { error: error instanceof Error ? error.message : String(error) } };
  }
}

/** Returns the environment variables of a client of the cloud. */
function environment(
  state: CloudState,
  authorityPath: string,
  authority: string,
  resourceManagerUrl: string,
  origin: (host: string) => string,
): Record<string, string> {
  return {
    AZURE_TENANT_ID: state.tenantId,
    AZURE_AUTHORITY_HOST: authority,
    ENTRA_API_CLIENT_ID: state.apiClientId,
    ENTRA_TENANT_IDS: state.tenantId,
    AZURE_RESOURCE_MANAGER_ENDPOINT: resourceManagerUrl,
    AZURE_KEY_VAULT_SUFFIX: VAULT_SUFFIX,
    AZURE_APP_CONFIGURATION_SUFFIX: "azconfig.localhost",
    AZURE_RESOURCE_DOMAINS: [...KEY_SERVICE_DOMAINS, POSTGRESQL_DOMAIN, INGESTION_DOMAIN].join(","),
    AZURE_MAPS_ENDPOINT: origin(MAPS_HOST),
    SERVICE_KEY_VAULT_URL: origin(`${SERVICE_VAULT}.${VAULT_SUFFIX}`),
    IDENTITY_ENDPOINT: `http://127.0.0.1:${state.controlPort}/msi/token`,
    IDENTITY_HEADER: state.identityHeader,
    COMMUNICATION_CONNECTION_STRING: `endpoint=${origin("acme.communication.localhost")}/;accesskey=${state.mailKey}`,
    ALERT_SENDER_ADDRESS: `alerts@${MAIL_DOMAIN}`,
    APP_CONFIGURATION_CONNECTION_STRING: `Endpoint=${origin("acme.azconfig.localhost")};Id=${CONFIGURATION_CREDENTIAL};Secret=${state.configurationKey}`,
    NODE_EXTRA_CA_CERTS: authorityPath,
    NODE_OPTIONS: `--import=${new URL("./loopback-names.mjs", import.meta.url).href}`,
  };
}

/**
 * Listens on the requested port, or else on the last port if it is free, or else on any free port.
 * @returns the port
 */
async function listen(server: Server, requestedPort: number | undefined, lastPort: number): Promise<number> {
  server.keepAliveTimeout = KEEP_ALIVE_MS;
  const attempt = (port: number) =>
    new Promise<number>((resolve, reject) => {
      server.once("error", reject);
      server.listen(port, "127.0.0.1", () => {
        server.off("error", reject);
        resolve((server.address() as AddressInfo).port);
      });
    });
  if (requestedPort !== undefined) return attempt(requestedPort);
  try {
    return await attempt(lastPort);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EADDRINUSE") throw error;
    return attempt(0);
  }
}

async function close(server: Server): Promise<void> {
  const closed = new Promise((resolve) => server.close(resolve));
  server.closeAllConnections();
  await closed;
}
