import { secretValueOf } from "./applications.ts";
import type { Company } from "./company.ts";

/** The company small: one sample of each state of health, for tests. */
export const smallCompany: Company = {
  subscriptions: [
    {
      name: "Acme Production",
      vaults: [
        {
          name: "kv-shop-prod",
          tags: { owner: "shop@acme.example", env: "prod", "cost-centre": "4711" },
          secrets: [
            { name: "db-password", expiresInDays: 90, contentType: "text/plain", tags: { owner: "dba@acme.example" } },
            { name: "smtp-password", expiresInDays: 5.5 },
            { name: "payment-api-key", expiresInDays: 20, value: secretValueOf("Payment API", "gateway") },
            { name: "old-api-key", expiresInDays: -3 },
            { name: "session-salt" },
          ],
          keys: [
            { name: "orders", expiresInDays: 200, rotation: { rotateAfterDays: 90 } },
            { name: "ledger", type: "EC", curve: "P-384", expiresInDays: 12 },
          ],
          certificates: [
            { name: "www", dnsNames: ["www.acme.example", "acme.example"], issuer: "DigiCert", expiresInDays: 40 },
            { name: "internal-api", expiresInDays: 6, renewal: { action: "EmailContacts", daysBeforeExpiry: 30 } },
          ],
        },
        {
          name: "kv-shop-legacy",
          rbac: false,
          purgeProtection: false,
          diagnostics: "none",
          secrets: [{ name: "ftp-password", enabled: false, expiresInDays: -400 }],
        },
        { name: "kv-shop-empty" },
      ],
      dnsZones: [
        {
          name: "acme.example",
          resourceGroup: "rg-dns",
          records: [
            // The challenges of this name are in a zone of their own.
            { name: "_acme-challenge.shop", type: "CNAME", values: ["shop.challenges.acme.example."] },
          ],
        },
        { name: "challenges.acme.example", resourceGroup: "rg-dns" },
      ],
    },
  ],
  devops: {
    organization: "acme",
    projects: [
      {
        name: "Shop",
        groups: [
          { name: "shop-prod", vault: "kv-shop-prod", variables: { "db-password": { enabled: true } } },
          { name: "shop-copies", variables: { DB_PASSWORD: { secret: "copied-db-password" }, REGION: "westeurope" } },
        ],
        connections: [{ name: "deploy-payments", application: "Payment API", secret: "gateway" }],
      },
      { name: "Docs" },
      { name: "Website" },
      { name: "Archive", rights: "view" },
    ],
  },
  applications: [
    {
      name: "Payment API",
      owners: ["shop@acme.example"],
      secrets: [{ name: "gateway", expiresInDays: 20, createdDaysAgo: 345 }],
    },
    {
      name: "Shop Web",
      owners: ["shop@acme.example", "web@acme.example"],
      certificates: [{ name: "shop-web", expiresInDays: 200 }],
      federated: [
        { name: "main", issuer: "https://token.actions.githubusercontent.com", subject: "repo:acme/shop:ref:main" },
      ],
    },
    {
      name: "Old Importer",
      serviceOwns: false,
      secrets: [
        { name: "first", expiresInDays: -3, createdDaysAgo: 733 },
        { name: "forgotten", expiresInDays: 900, createdDaysAgo: 100 },
      ],
    },
  ],
};
