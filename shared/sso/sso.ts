import type { Access } from "../access/access.ts";
import type { PasswordSignIn } from "../access/sign-in.ts";
import type { Audit } from "../audit/audit.ts";
import type { Licensing } from "../licensing/licensing.ts";
import type { ServiceKeyVault } from "../platform/azure/service-key-vault.ts";
import type { Config } from "../platform/config/config.ts";
import type { Caller } from "../platform/http/endpoint.ts";
import { isLoopback } from "../platform/http/origin.ts";
import { invalidBody, Problem, retryLater } from "../platform/http/problem.ts";
import type { RateLimiter } from "../platform/http/rate-limit.ts";
import { createOutgoing, type OutgoingOptions } from "../platform/outgoing/outgoing.ts";
import type { Clock, Logger, Randomness } from "../platform/runtime.ts";
import type { Tables } from "../platform/storage/tables.ts";
import { createStoredSecrets } from "../secrets/stored-secrets.ts";
import { issuerProblem, PUBLIC_ADDRESS_RULES, providerAddressRules } from "./allowed-addresses.ts";
import type { SsoChange, SsoConfigurationView, SsoTest, SsoTestResult } from "./api.ts";
import type { SsoConfiguration } from "./configuration.ts";
import { checkIssuer, withChange } from "./configuration-change.ts";
import { type Configurations, createConfigurations } from "./configurations.ts";
import { credentialsExpiring, type SsoCredential } from "./expiring-credentials.ts";
import { type Candidate, testOidc } from "./oidc/connection-test.ts";
import { createDiscovery, type DiscoveryDocument, fetchDiscoveryDocument } from "./oidc/discovery.ts";
import { createLogoutTokens } from "./oidc/logout-token.ts";
import { createOidc } from "./oidc/oidc.ts";
import type { Check, Protocol } from "./protocol.ts";
import { testSaml } from "./saml/connection-test.ts";
import { createSaml } from "./saml/saml.ts";
import { checkSaml, withSamlMetadata } from "./saml/settings.ts";
import { SSO_SECRETS } from "./secrets.ts";
import type { ProtocolName } from "./sign-in-requests.ts";
import { createSignIns, type SignIns } from "./sign-ins.ts";
import { createSignOuts, type SignOuts } from "./sign-outs.ts";

/** Single sign-on (SSO): its configuration, and sign-ins with an identity provider. The endpoints under /auth/sso call it. */
export interface Sso {
  /** Returns the members that a page needs for its sign-in button, in every tier. */
  status(): Promise<{
    enabled: boolean;
    providerType: ProtocolName;
    loginButtonText: string;
    ssoOnlyMode: boolean;
  }>;
  /** Returns the configuration, without secrets. */
  configuration(): Promise<SsoConfigurationView>;
  /**
   * Changes the configuration.
   *
   * @param origin - The service's own origin. Undefined if it is not configured.
   * @throws {Problem} invalidRequest, conflict, preconditionFailed, unavailable
   */
  configure(
    given: SsoChange,
    ifMatch: string | undefined,
    caller: Caller,
    origin: string | undefined,
  ): Promise<SsoConfigurationView>;
  /** Tests a configuration without saving it. @throws {Problem} invalidRequest, conflict */
  test(given: SsoTest, caller: Caller, origin: string | undefined): Promise<SsoTestResult>;
  /** Turns single sign-on off. @throws {Problem} notFound, preconditionFailed */
  disable(ifMatch: string | undefined, caller: Caller): Promise<void>;
  /**
   * Returns an issuer's discovery document. Anyone can call this endpoint, so only public addresses are allowed.
   *
   * @throws {Problem} invalidRequest, rateLimited
   */
  discover(issuerUrl: string, caller: Caller): Promise<DiscoveryDocument>;
  /**
   * Returns the service's metadata for SAML identity providers as XML, in every tier.
   *
   * @throws {Problem} conflict without an origin
   */
  samlMetadata(origin: string | undefined): Promise<string>;
  begin: SignIns["begin"];
  complete: SignIns["complete"];
  logoutUrl: SignOuts["logoutUrl"];
  endByLogoutToken: SignOuts["endByLogoutToken"];
  endBySaml: SignOuts["endBySaml"];
  /** Decides whether a user may sign in with a password now. */
  passwordSignIn: PasswordSignIn;
  /** Returns true if a mapping assigns the roles of SSO users. */
  roleMapped(): Promise<boolean>;
  /**
   * Yields the credentials on which single sign-on depends and that expire not later than `latest`, for alerts. Yields none while
   * single sign-on is turned off.
   */
  expiring(latest: Date): AsyncGenerator<SsoCredential>;
  /**
   * Deletes expired rows and unused secrets. A daily timer calls it.
   *
   * @throws {CloudFailure} if a secret could not be deleted
   */
  cleanUp(caller: Caller): Promise<void>;
}

export interface SsoDependencies {
  tables: Tables;
  config: Pick<Config, "PRIVATE_TARGET_HOSTS" | "PUBLIC_BASE_URL" | "BOOTSTRAP_ADMIN_USERNAME">;
  audit: Audit;
  access: Pick<Access, "federated" | "hasBootstrapAdministrator">;
  licensing: Pick<Licensing, "tier">;
  /** Undefined if the service has no key vault of its own. Then client secrets are rejected. */
  vault: ServiceKeyVault | undefined;
  /** Limits sign-ins per client address, together with those with a password. */
  signInLimiter: RateLimiter;
  /** Limits rejected logout tokens per client address, together with other calls without a credential. */
  callLimiter: RateLimiter;
  /** Limits calls of `discover` per client address. */
  discoverLimiter: RateLimiter;
  clock: Clock;
  randomness: Randomness;
  log: Logger;
  /** Resolves host names. Default: the system's resolver. Tests replace it. */
  resolve?: OutgoingOptions["resolve"];
}

/** Creates single sign-on: connects the configuration, the two protocols and the sign-ins. */
export function createSso(deps: SsoDependencies): Sso {
  const { tables, config, audit, access, licensing, clock, randomness, log } = deps;
  const resolverOption = deps.resolve && { resolve: deps.resolve };
  const addressRules = { ...providerAddressRules(config), ...resolverOption };
  const outgoing = createOutgoing(addressRules);
  /** Sends requests for `discover`, which anyone can call. */
  const anonymousDiscovery = createOutgoing({ ...PUBLIC_ADDRESS_RULES, ...resolverOption });
  /** Returns whether the service may send requests and browsers to an address that the provider's discovery document names. */
  const isAllowedAddress = (address: string) => issuerProblem(address, addressRules) === undefined;
  const secrets = createStoredSecrets(SSO_SECRETS, { tables, audit, vault: deps.vault, clock, randomness });
  const configurations: Configurations = createConfigurations({
    tables,
    audit,
    secrets,
    addressRules,
    hasBootstrapAdministrator: () => access.hasBootstrapAdministrator(),
    bootstrapUsername: config.BOOTSTRAP_ADMIN_USERNAME,
    clock,
    randomness,
    log,
  });
  const discovery = createDiscovery({ outgoing, clock, isAllowedAddress });
  const saml = createSaml({ tables, secrets, clock, randomness });
  const protocols: Record<ProtocolName, Protocol> = {
    oidc: createOidc({ discovery, secrets, outgoing, clock, isAllowedAddress }),
    saml,
  };
  const signIns = createSignIns({
    tables,
    configurations,
    protocols,
    federated: access.federated,
    limiter: deps.signInLimiter,
    audit,
    clock,
    randomness,
  });

  const signOuts = createSignOuts({
    tables,
    configurations,
    protocols,
    logoutTokens: createLogoutTokens({ discovery, outgoing, clock }),
    saml,
    federated: access.federated,
    limiter: deps.callLimiter,
    audit,
    clock,
  });

  /** Returns whether single sign-on is turned on and licensed. */
  const isOn = async ({ isEnabled }: SsoConfiguration) => isEnabled && (await licensing.tier()) === "pro";

  /**
   * Returns the configuration, and whether passwords are turned off: never without a license, and never without a usable
   * bootstrap administrator.
   */
  async function readEffectiveState() {
    const configuration = await configurations.read();
    const enabled = await isOn(configuration);
    return {
      configuration,
      enabled,
      ssoOnlyMode: enabled && configuration.ssoOnlyMode && (await access.hasBootstrapAdministrator()),
    };
  }

  /** Tests an issuer and a client. `origin` is the service's own origin. */
  const runOidcTest = (candidate: Candidate, origin: string): Promise<Check[]> =>
    testOidc(candidate, origin, { outgoing, clock, isAllowedAddress });

  /** @throws {CloudFailure}; {Problem} invalidRequest if the secret was deleted from the key vault */
  async function savedSecret(
    reference: NonNullable<SsoConfiguration["oidcClientSecret"]>,
    issuer: string,
  ): Promise<string> {
    const secret = await secrets.read(reference, issuer);
    if (secret !== undefined) return secret;
    throw invalidBody("oidcClientSecret", "must be entered again: it is no longer in the service's own key vault");
  }

  async function testOidcConfiguration(given: SsoTest, saved: SsoConfiguration, ownOrigin: string) {
    const issuer = given.oidcIssuer ?? saved.oidcIssuer;
    if (issuer === undefined) throw invalidBody("oidcIssuer", "is required");
    checkIssuer(issuer, addressRules);
    const clientId = given.oidcClientId ?? saved.oidcClientId;
    // The saved secret is sent only to the issuer and for the client for which it was entered.
    const isSavedClient = issuer === saved.oidcIssuer && clientId === saved.oidcClientId;
    const reference = given.oidcClientSecret === undefined && isSavedClient ? saved.oidcClientSecret : undefined;
    const secret = reference ? await savedSecret(reference, issuer) : given.oidcClientSecret;
    return { issuer, checks: await runOidcTest({ issuer, clientId, secret }, ownOrigin) };
  }

  async function testSamlConfiguration(given: SsoTest, saved: SsoConfiguration) {
    const next = withChange(saved, await withSamlMetadata(given));
    // `isEnabled: false`: a missing member is a failed check in the result, not an error.
    checkSaml({ ...next, isEnabled: false }, addressRules);
    return { issuer: next.samlIdpEntityId, checks: testSaml(next, clock.now()) };
  }

  return {
    async status() {
      const { configuration, enabled, ssoOnlyMode } = await readEffectiveState();
      const { providerType, loginButtonText } = configuration;
      return { enabled, providerType, loginButtonText, ssoOnlyMode };
    },

    configuration: () => configurations.view(),

    async configure(given, ifMatch, caller, origin) {
      const ownOrigin = requireOrigin(origin);
      requireHttpsWithoutPath(config.PUBLIC_BASE_URL);
      // The function tests the connection. `change` calls it only if the new configuration is enabled and affects sign-ins, so a
      // configuration that does not work can be saved with `isEnabled: false`.
      return await configurations.change(given, ifMatch, caller, async (next, newSecret, before) => {
        if (next.providerType !== "oidc") return;
        // Without a client ID, the test covers only the issuer.
        const candidate: Candidate = { issuer: next.oidcIssuer!, clientId: undefined, secret: newSecret };
        // An unchanged client in use was tested when it was saved, so the key vault is not read.
        if (newSecret !== undefined || clientOf(next) !== clientOf(before)) {
          candidate.clientId = next.oidcClientId;
          if (next.oidcClientSecret && newSecret === undefined)
            candidate.secret = await savedSecret(next.oidcClientSecret, candidate.issuer);
        }
        const failed = (await runOidcTest(candidate, ownOrigin)).find(({ passed }) => !passed);
        if (failed) {
          const member = failed.name === "client" ? "oidcClientSecret" : "oidcIssuer";
          throw invalidBody(member, `does not work: ${failed.detail} It can be saved with isEnabled: false`);
        }
      });
    },

    async test(given, caller, origin) {
      const ownOrigin = requireOrigin(origin);
      const saved = await configurations.read();
      const providerType = given.providerType ?? saved.providerType;
      const { issuer, checks } =
        providerType === "oidc"
          ? await testOidcConfiguration(given, saved, ownOrigin)
          : await testSamlConfiguration(given, saved);
      const success = checks.every(({ passed }) => passed);
      const details = { providerType, issuer, success };
      await audit.append({
        type: "sso.tested",
        caller,
        target: { type: "sso", id: "configuration" },
        outcome: "success",
        details,
      });
      return { success, providerType, checks };
    },

    disable: (ifMatch, caller) => configurations.disable(ifMatch, caller),

    async discover(issuerUrl, caller) {
      const { allowed: isAllowed, retryAfterSeconds } = await deps.discoverLimiter.take(`address:${caller.address}`);
      if (!isAllowed) throw retryLater("rateLimited", "Wait for the time in Retry-After.", retryAfterSeconds);
      const problem = issuerProblem(issuerUrl, PUBLIC_ADDRESS_RULES);
      if (problem !== undefined) throw invalidBody("issuerUrl", problem);
      // Otherwise anyone could scan the ports of other hosts through this service.
      if (new URL(issuerUrl).port !== "") throw invalidBody("issuerUrl", "must not have a port");
      try {
        return await fetchDiscoveryDocument(issuerUrl, anonymousDiscovery);
      } catch (error) {
        // One error for all causes, so that the response does not reveal which names and hosts exist in the service's network.
        if (!DISCOVERY_ERRORS.includes((error as Error).name)) throw error;
        throw invalidBody("issuerUrl", "has no discovery document that can be read at a public address");
      }
    },

    samlMetadata: async (origin) => await saml.metadata(await configurations.read(), requireOrigin(origin)),

    begin: signIns.begin,
    complete: signIns.complete,
    logoutUrl: signOuts.logoutUrl,
    endByLogoutToken: signOuts.endByLogoutToken,
    endBySaml: signOuts.endBySaml,

    // While passwords are turned off, only the bootstrap administrator may still sign in with a password (`breakGlass`).
    async passwordSignIn(username) {
      if (!(await readEffectiveState()).ssoOnlyMode) return "allowed";
      return username === config.BOOTSTRAP_ADMIN_USERNAME?.toLowerCase() ? "breakGlass" : "refused";
    },

    async roleMapped() {
      const { configuration, enabled } = await readEffectiveState();
      return enabled && configuration.roleMapping !== undefined;
    },

    async *expiring(latest) {
      const { configuration, enabled } = await readEffectiveState();
      if (enabled) yield* credentialsExpiring(configuration, clock.now(), latest);
    },

    async cleanUp(caller) {
      await signIns.cleanUp();
      await signOuts.cleanUp();
      await saml.cleanUp();
      const { oidcClientSecret, samlServiceKey } = await configurations.read();
      const used = [oidcClientSecret, samlServiceKey].flatMap((secret) => secret ?? []);
      await secrets.cleanUp(used, caller);
    },
  };
}

/** Returns a text of the members that a test of the client depends on, for comparing two configurations. */
const clientOf = ({ isEnabled, providerType, oidcIssuer, oidcClientId, oidcClientSecret }: SsoConfiguration): string =>
  JSON.stringify([isEnabled, providerType, oidcIssuer, oidcClientId, oidcClientSecret]);

/** Names of the errors with which a discovery document can't be read. */
const DISCOVERY_ERRORS = ["NoDiscoveryDocument", "Unreachable"];

/**
 * Providers redirect to the service's origin. With a path, another service could answer there, and without TLS the response
 * could be read in transit.
 *
 * @throws {Problem} conflict
 */
function requireHttpsWithoutPath(publicBaseUrl: string | undefined): void {
  if (publicBaseUrl === undefined) return;
  const { protocol, hostname, pathname } = new URL(publicBaseUrl);
  if (pathname === "/" && (protocol === "https:" || isLoopback(hostname))) return;
  throw new Problem("conflict", "For single sign-on PUBLIC_BASE_URL must be an https:// address without a path.");
}

/** @throws {Problem} conflict if no origin is configured: the redirect address must not depend on the request */
function requireOrigin(origin: string | undefined): string {
  if (origin !== undefined) return origin;
  throw new Problem("conflict", "Set PUBLIC_BASE_URL to the address at which people reach this service.");
}
