import type { CompanyTenant } from "../company/tenants.ts";
import { DirectoryControl } from "./directory-control.ts";
import type { Targets } from "./targets.ts";
import type { Tenant, TenantSummary, Tenants } from "./tenants.ts";

/** What a test can see and do in the company's other tenants. */
export class TenantsControl {
  readonly #tenants: Tenants;
  readonly #targets: Targets;

  constructor(tenants: Tenants, targets: Targets) {
    this.#tenants = tenants;
    this.#targets = targets;
  }

  /** With what the service is registered with in each. */
  list(): TenantSummary[] {
    return this.#tenants.summaries();
  }

  /** Its applications, and what the service may do in it. @throws {Error} when there is no such tenant. */
  directory(idOrDomain: string): DirectoryControl {
    return new DirectoryControl(this.#tenant(idOrDomain).directory, this.#targets);
  }

  /** From now on; what is left out stays. Days are counted from when the company was made. */
  change(
    idOrDomain: string,
    change: Partial<Pick<CompanyTenant, "type" | "domain" | "keySets" | "identityProviders">>,
  ) {
    Object.assign(this.#tenant(idOrDomain), change);
  }

  #tenant(idOrDomain: string): Tenant {
    const tenant = this.#tenants.find(idOrDomain);
    if (!tenant || tenant === this.#tenants.all[0]) throw new Error(`No other tenant ${idOrDomain}`);
    return tenant;
  }
}
