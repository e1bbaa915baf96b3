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

/** Reads and changes the stored configuration of single sign-on, and counts its sign-ins. */
export interface Configurations {
  /** Returns the configuration, or the default (single sign-on is off) if none is stored. Costs one read. */
  read(): Promise<SsoConfiguration>;
  /** Returns the configuration for API responses. */
  view(): Promise<SsoConfigurationView>;
  /**
   * Changes the configuration.
   *
   * @param testConnection - Tests a configuration with which people can sign in after the change, with the new client secret if
   * there is one. Throws to reject it.
   * @throws {Problem} invalidRequest, conflict, preconditionFailed, unavailable
   */
  change(
    requested: SsoChange,
    ifMatch: string | undefined,
    caller: Caller,
    testConnection: (next: SsoConfiguration, secret: string | undefined, before: SsoConfiguration) => Promise<void>,
  ): Promise<SsoConfigurationView>;
  /**
   * Turns single sign-on off, allows passwords again and keeps the rest of the configuration.
   *
   * @throws {Problem} notFound, preconditionFailed
   */
  disable(ifMatch: string | undefined, caller: Caller): Promise<void>;
  /**
   * Counts a sign-in. The sign-in of an administrator is also recorded, because it is required before passwords can be turned
   * off. If storage fails, both are lost, but the sign-in succeeds.
   */
  recordSignIn(config: SsoConfiguration, role: Role): Promise<void>;
}

/** Attempts to write a count while other sign-ins write it. */
const ATTEMPTS = 20;

export function createConfigurations(deps: {
  tables: Tables;
  audit: Pick<Audit, "append">;
  secrets: SsoSecrets;
  /** Which addresses an administrator may configure as the identity provider's. */
  addressRules: OutgoingOptions;
  /**
   * Returns true if the bootstrap administrator can sign in while passwords are turned off: see
   * `Access.hasBootstrapAdministrator`.
   */
  hasBootstrapAdministrator(): Promise<boolean>;
  /** Username of the bootstrap administrator. Undefined if none is configured. */
  bootstrapUsername: string | undefined;
  clock: Clock;
  randomness: Randomness;
  log: Logger;
}): Configurations {
  const { tables, audit, secrets, clock, randomness, log } = deps;

  const readRow = () => tables.get(Configuration, SSO, CONFIGURATION_KEY);
  const readLogins = () => tables.get(Logins, SSO, LOGINS_KEY);

  /** @throws {Problem} conflict if turning off passwords would lock out everyone */
  async function requireBootstrapAdministrator(config: SsoConfiguration): Promise<void> {
    const problem = (detail: string) => new Problem("conflict", `Passwords stay turned on. ${detail}`);
    if (!config.isEnabled) throw problem("Single sign-on is not turned on.");
    if ((await readLogins())?.administratorUnder !== config.generation) {
      throw problem("An administrator must first sign in with single sign-on in its current configuration.");
    }
    if (!(await deps.hasBootstrapAdministrator())) {
      throw problem(
        "The user whom BOOTSTRAP_ADMIN_USERNAME names must be active and have the role admin and a password.",
      );
    }
  }

  /** Writes the configuration in one transaction with other operations, if the row is unchanged since `before`. */
  async function write(
    before: SsoConfigurationRow | undefined,
    next: SsoConfiguration,
    otherOperations: Operation[],
    ifMatch: string | undefined,
  ): Promise<void> {
    const operation = before
      ? replace(Configuration, CONFIGURATION_KEY, next, before.etag)
      : insert(Configuration, CONFIGURATION_KEY, next);
    const written = tables.transaction(Configuration.table, SSO, [operation, ...otherOperations]);
    await conditionalWrite(written, ifMatch, THE_CONFIGURATION);
  }

  /**
   * Returns the configuration with a new revision. If the change affects who can sign in, the generation changes too: an
   * administrator must then sign in again before passwords can be turned off.
   */
  function withRevision(config: SsoConfiguration, before: SsoConfiguration, caller: Caller): SsoConfiguration {
    const changedAt = clock.now();
    const revision = randomness.ulid(changedAt);
    const generation = signInMembers(config) === signInMembers(before) ? before.generation : revision;
    return { ...config, generation, revision, updatedAt: changedAt.toISOString(), updatedBy: caller.actor };
  }

  /**
   * Writes the secrets that the new configuration references to the key vault, before the row that references them. Each secret
   * is bound to a text, its issuer or its use, and can be read only with that text.
   *
   * @returns The references, and operations for the transaction that stores them: it fails if a clean-up has deleted a secret.
   */
  async function writeSecrets(config: SsoConfiguration, clientSecret: string | undefined) {
    const references: Pick<SsoConfiguration, "oidcClientSecret" | "samlServiceKey" | "samlServiceCertificate"> = {};
    if (clientSecret !== undefined)
      references.oidcClientSecret = await secrets.write(clientSecret, config.oidcIssuer ?? "");
    if (config.samlSignRequests && !config.samlServiceKey) {
      const { makeServiceKey } = await import("./saml/service-key.ts");
      const { key, certificate } = await makeServiceKey(SERVICE_KEY_NAME, clock.now());
      references.samlServiceKey = await secrets.write(key, SERVICE_KEY_USE);
      references.samlServiceCertificate = certificate.pem;
    }
    const newReferences = [references.oidcClientSecret, references.samlServiceKey].flatMap((secret) => secret ?? []);
    return { references, operations: newReferences.map((secret) => secrets.requireStored(secret)) };
  }

  const view = async (config: SsoConfiguration) =>
    ssoConfigurationView(config, await readLogins(), deps.bootstrapUsername);

  return {
    read: async () => {
      const row = await readRow();
      return row ? withoutKeys(row) : UNCONFIGURED;
    },

    view: async () => view((await readRow()) ?? UNCONFIGURED),

    async change(requested, ifMatch, caller, testConnection) {
      const requestedChange = await withSamlMetadata(requested);
      const row = await readRow();
      const before: SsoConfiguration = row ? withoutKeys(row) : UNCONFIGURED;
      requireMatch(`"${before.revision}"`, ifMatch, THE_CONFIGURATION);
      const changed = withChange(before, requestedChange);
      // The saved secret is sent only to the issuer for which it was entered. A new one is referenced after it was written (below).
      const hasSameSecret = keepsSecret(before, changed, requestedChange);
      const { oidcClientSecret: savedSecret, ...withoutSecret } = changed;
      let next: SsoConfiguration =
        hasSameSecret && savedSecret ? { ...withoutSecret, oidcClientSecret: savedSecret } : withoutSecret;
      checkConfiguration(next, deps.addressRules);

      const secret = requestedChange.oidcClientSecret ?? undefined;
      const affectsSignIn = secret !== undefined || signInMembers(next) !== signInMembers(before);
      if (affectsSignIn) {
        if (requestedChange.ssoOnlyMode) {
          const detail =
            "This changes who can sign in. Save it, sign in with it as an administrator, and then turn passwords off.";
          throw new Problem("conflict", detail);
        }
        // Turns passwords on again, because nobody may be able to sign in with the new configuration.
        next.ssoOnlyMode = false;
      } else if (next.ssoOnlyMode && !before.ssoOnlyMode) await requireBootstrapAdministrator(next);
      if (affectsSignIn && next.isEnabled) await testConnection(next, secret, before);

      const event = { type: "sso.configured", caller, target: TARGET, before: auditView(before) };
      const effect = async () => {
        const { references, operations } = await writeSecrets(next, secret);
        next = withRevision({ ...next, ...references }, before, caller);
        await write(row, next, operations, ifMatch);
        return next;
      };
      await audited(audit, event, effect, (after) => ({ after: auditView(after) }));
      return await view(next);
    },

    async disable(ifMatch, caller) {
      const row = await readRow();
      if (!row) throw notFound(THE_CONFIGURATION);
      requireMatch(`"${row.revision}"`, ifMatch, THE_CONFIGURATION);
      const before: SsoConfiguration = withoutKeys(row);
      const event = { type: "sso.disabled", caller, target: TARGET };
      await audited(audit, event, async () => {
        const next = withRevision({ ...before, isEnabled: false, ssoOnlyMode: false }, before, caller);
        await write(row, next, [], ifMatch);
      });
    },

    async recordSignIn(config, role) {
      const lastAt = clock.now().toISOString();
      try {
        await repeatOnConflict(async () => {
          const storedLogins = await readLogins();
          const administrator = role === "admin" ? { administratorUnder: config.generation } : {};
          const next = {
            ...(storedLogins && withoutKeys(storedLogins)),
            total: (storedLogins?.total ?? 0) + 1,
            lastAt,
            ...administrator,
          };
          if (storedLogins) await tables.replace(Logins, { ...storedLogins, ...next });
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
function auditView(config: SsoConfiguration) {
  const { generation: _, revision: __, updatedAt: ___, updatedBy: ____, ...rest } = config;
  const { samlIdpCertificates: certificates, samlServiceCertificate: serviceCertificate, ...others } = rest;
  return {
    ...others,
    ...(certificates && { samlIdpCertificates: certificates.map(fingerprintOf) }),
    ...(serviceCertificate && { samlServiceCertificate: fingerprintOf(serviceCertificate) }),
  };
}
