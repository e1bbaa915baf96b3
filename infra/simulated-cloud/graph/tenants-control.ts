import type { CompanyTenant } from "../company/tenants.ts";
import { DirectoryControl } from "./directory-control.ts";
import type { Tenant, TenantSummary, Tenants } from "./tenants.ts";
import type { Targets } from "./watched-secrets.ts";

/**
 * Operations by which tests and developers read and change the company's tenants other than the service's own. No API of
 * Microsoft has them.
 */
export class TenantsControl {
  readonly #tenants: Tenants;
  /** Vault secrets that must always contain a working client secret. */
  readonly #targets: Targets;

  constructor(tenants: Tenants, targets: Targets) {
    this.#tenants = tenants;
    this.#targets = targets;
  }

  /** Lists the tenants, with the service's app registration in each. */
  list(): TenantSummary[] {
    return this.#tenants.summaries();
  }

  /**
   * Returns the control operations for a tenant's applications and permissions.
   * @throws {Error} if there is no such tenant.
   */
  directory(idOrDomain: string): DirectoryControl {
    return new DirectoryControl(this.#tenant(idOrDomain).directory, this.#targets);
  }

  /**
   * Changes a tenant. Omitted members stay. Members in days, such as the days until a key expires, count from the creation of
   * the simulated company, not from now.
   */
  change(
    idOrDomain: string,
    change: Partial<Pick<CompanyTenant, "type" | "domain" | "keySets" | "identityProviders">>,
  ) {
    Object.assign(this.#tenant(idOrDomain), change);
  }

  #tenant(idOrDomain: string): Tenant {
    const tenant = this.#tenants.find(idOrDomain);
    // The first tenant is the service's own, which has control operations of its own.
    if (!tenant || tenant === this.#tenants.all[0])
      throw new Error(`Unknown tenant ${idOrDomain}, or the service's own`);
    return tenant;
  }
}
