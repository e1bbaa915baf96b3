// Other tenants of the sample company acme.

import type { CompanyApplication } from "./applications.ts";
import type { CompanyKeySet, CompanyTenant } from "./tenants.ts";

/** Days until the credentials of customers' applications expire, used cyclically, so that each state of health occurs. */
const DAYS = [-40, -2, 0.5, 3, 6, 9, 18, 27, 35, 60, 90, 140, 200, 280, 340, 400, 640];
const daysOf = (index: number): number => DAYS[index % DAYS.length]!;

const SHOPS = [
  "Web",
  "Mobile",
  "Kiosk",
  "Loyalty",
  "Returns",
  "Gift Cards",
  "Outlet",
  "Wholesale",
  "Support",
  "Events",
];
const REGIONS = [
  "EU",
  "UK",
  "US",
  "Nordics",
  "DACH",
  "Iberia",
  "Benelux",
  "Japan",
  "Brazil",
  "Canada",
  "India",
  "Mexico",
];

/** Names of the applications with which the service signs in to the customers' and to the partners' tenant. */
export const SHOP_REGISTRATION = "Shop Credential Lifecycle";
export const PARTNER_REGISTRATION = "Partner Credential Lifecycle";

/**
 * The other tenants of the company acme: a B2C tenant for customers with 300 credentials of applications, custom
 * policies and identity providers, and an External ID tenant for partners.
 */
export const acmeTenants: CompanyTenant[] = [
  {
    name: "Acme Shop",
    domain: "acmeshop.onmicrosoft.com",
    type: "AAD B2C",
    registration: SHOP_REGISTRATION,
    applications: [
      { name: SHOP_REGISTRATION, serviceOwns: false, secrets: [{ name: "lifecycle", expiresInDays: 120 }] },
      ...SHOPS.flatMap((shop, shopIndex) =>
        REGIONS.map((region, index) => shopApplication(shop, region, shopIndex * REGIONS.length + index)),
      ),
    ],
    keySets: Array.from({ length: 24 }, (_, index) => keySet(index)),
    identityProviders: [
      { id: "Google-OAUTH", name: "Google", type: "socialIdentityProvider", clientId: "acme.apps.google.example" },
      { id: "Facebook-OAUTH", name: "Facebook", type: "socialIdentityProvider", clientId: "48213377" },
      { id: "Amazon-OAUTH", name: "Amazon", type: "socialIdentityProvider", clientId: "amzn1.acme" },
      { id: "Apple-Managed-OIDC", name: "Sign in with Apple", type: "appleManagedIdentityProvider" },
      { id: "EmailPassword-OAUTH", name: "Email and password", type: "builtInIdentityProvider" },
    ],
  },
  {
    name: "Acme Partners",
    domain: "acmepartners.onmicrosoft.com",
    type: "CIAM",
    registration: PARTNER_REGISTRATION,
    permissions: ["Application.Read.All", "Organization.Read.All", "IdentityProvider.Read.All"],
    applications: [
      { name: PARTNER_REGISTRATION, serviceOwns: false, secrets: [{ name: "lifecycle", expiresInDays: 200 }] },
      ...REGIONS.slice(0, 6).map(
        (region, index): CompanyApplication => ({
          name: `Partner Portal ${region}`,
          serviceOwns: false,
          owners: ["partners@acme.example"],
          secrets: [{ name: "portal", expiresInDays: daysOf(index * 3) }],
        }),
      ),
    ],
    identityProviders: [
      { id: "Google-OAUTH", name: "Google", type: "socialIdentityProvider", clientId: "partners.google.example" },
      { id: "EmailPassword-OAUTH", name: "Email with password", type: "builtInIdentityProvider" },
    ],
  },
];

/** Declares one of 120 applications, which have 247 secrets and certificates together. */
function shopApplication(shop: string, region: string, index: number): CompanyApplication {
  return {
    name: `${shop} ${region}`,
    audience: "AzureADandPersonalMicrosoftAccount",
    serviceOwns: false,
    ...(index % 9 !== 4 && { owners: [`${shop.toLowerCase().replace(" ", "-")}@acme.example`] }),
    secrets: [
      { name: "current", expiresInDays: daysOf(index), createdDaysAgo: 60 },
      ...(index % 10 === 7 ? [] : [{ name: "next", expiresInDays: daysOf(index + 5), createdDaysAgo: 20 }]),
    ],
    ...(index % 6 === 0 &&
      index < 114 && { certificates: [{ name: `${shop}-${region}`, expiresInDays: daysOf(index + 9) }] }),
  };
}

/** Declares one of 24 key sets, which have 48 keys together. */
function keySet(index: number): CompanyKeySet {
  const keyKind = (["rsa", "secret", "certificate"] as const)[index % 3]!;
  const name = { rsa: "TokenSigning", secret: "ProviderSecret", certificate: "SamlSigning" }[keyKind];
  return {
    id: `B2C_1A_${name}${index < 3 ? "KeyContainer" : `_${Math.floor(index / 3)}`}`,
    keys: [
      { name: `first ${index}`, what: keyKind, use: "sig", ...(index % 4 !== 1 && { expiresInDays: daysOf(index) }) },
      {
        name: `second ${index}`,
        what: keyKind,
        use: "sig",
        ...(index % 4 === 2 && { expiresInDays: daysOf(index + 7) }),
      },
    ],
  };
}
