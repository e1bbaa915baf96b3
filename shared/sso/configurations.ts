import type { Audit } from "../audit/audit.ts";
import { audited } from "../audit/audited.ts";
import { conditionalWrite, requireMatch } from "../platform/http/conditional-requests.ts";
import type { Caller, Role } from "../platform/http/endpoint.ts";
import { notFound, Problem } from "../platform/http/problem.ts";
import type { OutgoingOptions } from "../platform/outgoing/outgoing.ts";
import type { Clock, Logger, Randomness } from "../platform/runtime.ts";
import { repeatOnConflict } from "../platform/storage/conflict.ts";
import { withoutKeys } from "../platform/storage/entity.ts";
import { insert, type Operation, replace, type Tables } from "../platform/storage/tables.ts";
import type { SsoChange, SsoConfigurationView } from "./api.ts";
import {
  CONFIGURATION_KEY,
  Configuration,
  LOGINS_KEY,
  Logins,
  SSO,
  type SsoConfiguration,
  type SsoConfigurationRow,
  UNCONFIGURED,
} from "./configuration.ts";
import { checkConfiguration, keepsSecret, signInMembers, withChange } from "./configuration-change.ts";
import { fingerprintOf } from "./saml/certificates.ts";
import { withSamlMetadata } from "./saml/settings.ts";
import { SERVICE_KEY_USE, type SsoSecrets } from "./secrets.ts";
import { ssoConfigurationView } from "./views.ts";

/** The stored configuration of single sign-on, and counts of its sign-ins. */
export interface Configurations {
  /** Reads the configuration, or the default if none is stored. Costs one read. */
  read(): Promise<SsoConfiguration>;
  /** Returns the configuration for API responses. */
  view(): Promise<SsoConfigurationView>;
  /**
   * Changes the configuration.
   *
   * @param tryIt - Tests a configuration that is about to be turned on, with the given secret. Throws to reject it.
   * @throws {Problem} invalidRequest, conflict, preconditionFailed, unavailable
   */
  change(
    given: SsoChange,
    ifMatch: string | undefined,
    caller: Caller,
    tryIt: (next: SsoConfiguration, secret: string | undefined, before: SsoConfiguration) => Promise<void>,
  ): Promise<SsoConfigurationView>;
  /** Turns single sign-on off and keeps the rest of the configuration. @throws {Problem} notFound, preconditionFailed */
  disable(ifMatch: string | undefined, caller: Caller): Promise<void>;
  /** Counts a sign-in. If storage fails, the count is lost, but the sign-in succeeds. */
  signedIn(config: SsoConfiguration, role: Role): Promise<void>;
}

/** Attempts to write a count while other sign-ins write it. */
const ATTEMPTS = 20;

export function createConfigurations(deps: {
  tables: Tables;
  audit: Pick<Audit, "append">;
  secrets: SsoSecrets;
  targets: OutgoingOptions;
  /**
   * Returns true if the bootstrap administrator can sign in while passwords are turned off: see
   * `Access.hasBootstrapAdministrator`.
   */
  hasBootstrapAdministrator(): Promise<boolean>;
  clock: Clock;
  randomness: Randomness;
  log: Logger;
}): Configurations {
  const { tables, audit, secrets, clock, randomness, log } = deps;

  const row = () => tables.get(Configuration, SSO, CONFIGURATION_KEY);
  const logins = () => tables.get(Logins, SSO, LOGINS_KEY);

  /** @throws {Problem} conflict if turning off passwords would lock out everyone */
  async function requireBootstrapAdministrator(config: SsoConfiguration): Promise<void> {
    const refuse = (detail: string) => new Problem("conflict", `Passwords stay turned on. ${detail}`);
    if (!config.isEnabled) throw refuse("Single sign-on is not turned on.");
    if ((await logins())?.administratorUnder !== config.generation) {
      throw refuse("An administrator must first sign in with single sign-on in its present configuration.");
    }
    if (!(await deps.hasBootstrapAdministrator())) {
      throw refuse(
        "The administrator whom BOOTSTRAP_ADMIN_USERNAME names must be active, be admin and have a password.",
      );
    }
  }

  async function write(
    before: SsoConfigurationRow | undefined,
    next: SsoConfiguration,
    also: Operation[],
    ifMatch: string | undefined,
  ): Promise<void> {
    const operation = before
      ? replace(Configuration, CONFIGURATION_KEY, next, before.etag)
      : insert(Configuration, CONFIGURATION_KEY, next);
    const written = tables.transaction(Configuration.table, SSO, [operation, ...also]);
    await conditionalWrite(written, ifMatch, THE_CONFIGURATION);
  }

  /** Members that change with every change. */
  function revised(config: SsoConfiguration, before: SsoConfiguration, caller: Caller): SsoConfiguration {
    const now = clock.now();
    const revision = randomness.ulid(now);
    const generation = signInMembers(config) === signInMembers(before) ? before.generation : revision;
    return { ...config, generation, revision, updatedAt: now.toISOString(), updatedBy: caller.actor };
  }

  /** Writes the secrets that the new configuration references to the key vault, before the row that references them. */
  async function madeSecrets(config: SsoConfiguration, clientSecret: string | undefined) {
    const made: Pick<SsoConfiguration, "oidcClientSecret" | "samlServiceKey" | "samlServiceCertificate"> = {};
    if (clientSecret !== undefined) made.oidcClientSecret = await secrets.write(clientSecret, config.oidcIssuer ?? "");
    if (config.samlSignRequests && !config.samlServiceKey) {
      const { makeServiceKey } = await import("./saml/service-key.ts");
      const { key, certificate } = await makeServiceKey(SERVICE_KEY_NAME, clock.now());
      made.samlServiceKey = await secrets.write(key, SERVICE_KEY_USE);
      made.samlServiceCertificate = certificate.pem;
    }
    const kept = [made.oidcClientSecret, made.samlServiceKey].flatMap((secret) => secret ?? []);
    return { made, operations: kept.map((secret) => secrets.stillKept(secret)) };
  }

  const view = async (config: SsoConfiguration) => ssoConfigurationView(config, await logins());

  return {
    read: async () => {
      const found = await row();
      return found ? withoutKeys(found) : UNCONFIGURED;
    },

    view: async () => view((await row()) ?? UNCONFIGURED),

    async change(asked, ifMatch, caller, tryIt) {
      const given = await withSamlMetadata(asked);
      const found = await row();
      const before: SsoConfiguration = found ? withoutKeys(found) : UNCONFIGURED;
      requireMatch(`"${before.revision}"`, ifMatch, THE_CONFIGURATION);
      const wanted = withChange(before, given);
      const kept = keepsSecret(before, wanted, given);
      const { oidcClientSecret: known, ...bare } = wanted;
      let next: SsoConfiguration = kept && known ? { ...bare, oidcClientSecret: known } : bare;
      checkConfiguration(next, deps.targets);

      const secret = given.oidcClientSecret ?? undefined;
      const decides = secret !== undefined || signInMembers(next) !== signInMembers(before);
      if (decides) {
        if (given.ssoOnlyMode) {
          const detail =
            "This changes who can sign in. Save it, sign in with it as an administrator, and then turn passwords off.";
          throw new Problem("conflict", detail);
        }
        next.ssoOnlyMode = false;
      } else if (next.ssoOnlyMode && !before.ssoOnlyMode) await requireBootstrapAdministrator(next);
      if (decides && next.isEnabled) await tryIt(next, secret, before);

      const event = { type: "sso.configured", caller, target: TARGET, before: entered(before) };
      const effect = async () => {
        const { made, operations } = await madeSecrets(next, secret);
        next = revised({ ...next, ...made }, before, caller);
        await write(found, next, operations, ifMatch);
        return next;
      };
      await audited(audit, event, effect, (after) => ({ after: entered(after) }));
      return await view(next);
    },

    async disable(ifMatch, caller) {
      const found = await row();
      if (!found) throw notFound(THE_CONFIGURATION);
      requireMatch(`"${found.revision}"`, ifMatch, THE_CONFIGURATION);
      const before: SsoConfiguration = withoutKeys(found);
      const event = { type: "sso.disabled", caller, target: TARGET };
      await audited(audit, event, async () => {
        const next = revised({ ...before, isEnabled: false, ssoOnlyMode: false }, before, caller);
        await write(found, next, [], ifMatch);
      });
    },

    async signedIn(config, role) {
      const lastAt = clock.now().toISOString();
      try {
        await repeatOnConflict(async () => {
          const before = await logins();
          const under = role === "admin" ? { administratorUnder: config.generation } : {};
          const next = { ...(before && withoutKeys(before)), total: (before?.total ?? 0) + 1, lastAt, ...under };
          if (before) await tables.replace(Logins, { ...before, ...next });
          else await tables.insert(Logins, SSO, LOGINS_KEY, next);
        }, ATTEMPTS);
      } catch (error) {
        log.warn("A sign-in by single sign-on was not counted", { reason: (error as Error).name });
      }
    },
  };
}

const THE_CONFIGURATION = "The configuration of single sign-on";
const TARGET = { type: "sso", id: "configuration" };

/** Common name of the service's certificate. */
const SERVICE_KEY_NAME = "credential-lifecycle-service";

/** Returns the configuration for the audit log. It contains references of secrets, not the secrets. */
function entered(config: SsoConfiguration) {
  const { generation: _, revision: __, updatedAt: ___, updatedBy: ____, ...rest } = config;
  const { samlIdpCertificates: certificates, samlServiceCertificate: own, ...others } = rest;
  return {
    ...others,
    ...(certificates && { samlIdpCertificates: certificates.map(fingerprintOf) }),
    ...(own && { samlServiceCertificate: fingerprintOf(own) }),
  };
}
