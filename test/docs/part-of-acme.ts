import { acmeCompany } from "simulated-cloud/company/acme.ts";
import type { Company } from "simulated-cloud/company/company.ts";

/** Of the company that `npm start` shows what the description's examples name, as it is there: names and ids are the same. */
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
