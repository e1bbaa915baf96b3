import { acmeCompany } from "simulated-cloud/company/acme.ts";
import type { Company } from "simulated-cloud/company/company.ts";

/** The resources of the simulated company that the examples of the API description name, with the same names and ids. */
export function partOfAcme(): Company {
  const { subscriptions = [], applications = [], devops, tenants = [] } = acmeCompany(1);
  const production = subscriptions[0]!;
  const [shop, partners] = tenants;
  const payments = ({ name }: { name: string }) => /payments/i.test(name);
  return {
    subscriptions: [
      {
        name: production.name,
        ...(production.tags && { tags: production.tags }),
        vaults: (production.vaults ?? []).filter(payments),
        resources: (production.resources ?? []).filter(payments),
      },
    ],
    applications: applications.filter(payments),
    devops: { organization: devops!.organization, projects: [{ name: "Payments" }] },
    tenants: [
      { ...shop!, applications: shop!.applications!.slice(0, 4), keySets: shop!.keySets!.slice(0, 2) },
      { ...partners!, applications: partners!.applications!.slice(0, 4) },
    ],
  };
}
