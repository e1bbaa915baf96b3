import { createHash } from "node:crypto";
import type { CloudClock } from "../clock.ts";
import { appIdOf, secretValueOf } from "../company/applications.ts";
import {
  type CompanyIdentityProvider,
  type CompanyKeySet,
  type CompanyTenant,
  TENANT_PERMISSIONS,
} from "../company/tenants.ts";
import { guidFrom } from "../vaults/identifiers.ts";
import { Directory } from "./directory.ts";

const DAY_SECONDS = 86_400;
type Members = Record<string, unknown>;

/** A tenant of the cloud: the service's own, or another tenant with a registration of the service. */
export interface Tenant {
  id: string;
  name: string;
  domain: string;
  type: CompanyTenant["type"];
  directory: Directory;
  keySets: CompanyKeySet[];
  identityProviders: CompanyIdentityProvider[];
}

/** Another tenant as the control API returns it, with the service's registration. */
export interface TenantSummary {
  id: string;
  name: string;
  domain: string;
  type: Tenant["type"];
  clientId: string;
  /** The secret as the company declared it. Undefined if the registration has none. */
  clientSecret: string | undefined;
}

/**
 * Stores all tenants, the service's own tenant first. Changes of other tenants are lost when the cloud stops.
 */
export class Tenants {
  readonly all: Tenant[];
  readonly #declared: readonly CompanyTenant[];
  readonly #base: number;

  /** @param base - Start time of the simulated company in Unix seconds. `expiresInDays` and `activeInDays` count from it. */
  constructor(own: Tenant, declared: readonly CompanyTenant[], { base, clock }: { base: number; clock: CloudClock }) {
    this.#declared = declared;
    this.#base = base;
    this.all = [own, ...declared.map((one) => tenantFrom(one, base, clock))];
  }

  /** Finds a tenant by ID or domain, in any case. */
  find(idOrDomain: string): Tenant | undefined {
    const text = idOrDomain.toLowerCase();
    return this.all.find(({ id, domain }) => id === text || domain === text);
  }

  /** Returns the application permissions of a service principal in any tenant. */
  permissionsOf(objectId: string): readonly string[] {
    return this.all.flatMap(({ directory }) => directory.permissionsOf(objectId));
  }

  /** Returns the other tenants for the control API. */
  summaries(): TenantSummary[] {
    return this.#declared.map((one) => {
      const { registration, applications } = one;
      const { id, name, domain, type } = this.find(idOf(one))!;
      const secret = applications.find((application) => application.name === registration)?.secrets?.[0];
      const clientSecret = secret && secretValueOf(registration, secret.name);
      return { id, name, domain, type, clientId: appIdOf(registration), clientSecret };
    });
  }

  /**
   * Formats a key set with the public parts of its keys. A digest of the names stands for the key and the certificate.
   * https://learn.microsoft.com/graph/api/resources/trustframeworkkeyset
   */
  keySetJson({ id, keys }: CompanyKeySet): Members {
    return {
      id,
      keys: keys.map(({ name, what = "rsa", use = "sig", expiresInDays, activeInDays }) => {
        const digest = createHash("sha256").update(`${id}/${name}`).digest("base64url");
        const thumbprint = createHash("sha1").update(`${id}/${name}`).digest("base64url");
        return {
          kid: digest,
          kty: what === "secret" ? "oct" : "RSA",
          use,
          ...(expiresInDays !== undefined && { exp: Math.round(this.#base + expiresInDays * DAY_SECONDS) }),
          ...(activeInDays !== undefined && { nbf: Math.round(this.#base + activeInDays * DAY_SECONDS) }),
          ...(what === "certificate" && { x5t: thumbprint, x5c: [digest] }),
          ...(what !== "secret" && { n: digest, e: "AQAB" }),
        };
      }),
    };
  }
}

const idOf = ({ id, domain }: CompanyTenant): string => (id ?? guidFrom(`tenant ${domain}`)).toLowerCase();

function tenantFrom(declared: CompanyTenant, base: number, clock: CloudClock): Tenant {
  const { name, domain, type, registration, applications, keySets = [], identityProviders = [] } = declared;
  // ID of the service principal, as the directory derives it.
  const principal = { clientId: appIdOf(registration), objectId: guidFrom(`service principal ${registration}`) };
  const directory = new Directory({ applications, base, clock, service: [principal] });
  directory.settings = { ...directory.settings, permissions: declared.permissions ?? [...TENANT_PERMISSIONS] };
  return { id: idOf(declared), name, domain: domain.toLowerCase(), type, directory, keySets, identityProviders };
}

/** Formats an identity provider without its secrets: https://learn.microsoft.com/graph/api/resources/identityproviderbase */
export function identityProviderJson({ id, name, type, clientId }: CompanyIdentityProvider): Members {
  const commonMembers = { "@odata.type": `#microsoft.graph.${type}`, id, displayName: name };
  if (type === "builtInIdentityProvider")
    return { ...commonMembers, identityProviderType: "EmailPassword", state: null };
  if (type === "socialIdentityProvider") {
    return { ...commonMembers, identityProviderType: name, clientId: clientId ?? id, clientSecret: "******" };
  }
  return {
    ...commonMembers,
    developerId: "ACME",
    serviceId: "com.acme.shop",
    keyId: "QW12ER34TY",
    certificateData: "******",
  };
}
