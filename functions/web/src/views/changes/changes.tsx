import { Link, Text } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { changedName } from "../../parts/asset-name.ts";
import { Card } from "../../parts/card.tsx";
import { type Filter, Filters, givenFilters } from "../../parts/filters.tsx";
import { Instant } from "../../parts/instant.tsx";
import { BY_CURSOR, type Column, PagedTable } from "../../parts/paged-table.tsx";
import { useSearchParams } from "../../parts/router.tsx";
import { View } from "../../parts/view.tsx";

type Change = Schemas["AssetChange"];

const KINDS = { added: "Added", updated: "Modified", removed: "Deleted" } as const satisfies Record<
  Change["change"],
  string
>;

const FILTERS = [
  { name: "change", label: "Change", values: KINDS },
  { name: "type", label: "Type", values: ["secret", "key", "certificate"] },
  { name: "vault", label: "Vault", placeholder: "Full vault name" },
  { name: "since", label: "Since", type: "date" },
  { name: "until", label: "Until", type: "date" },
] as const satisfies Filter[];

const COLUMNS: Column<Change>[] = [
  { title: "Found", nowrap: true, cell: ({ at }) => <Instant at={at} /> },
  { title: "Change", cell: ({ change }) => KINDS[change] },
  {
    title: "Asset",
    // A removed asset has no page.
    cell: ({ change, assetId, ...asset }) =>
      change === "removed" ? (
        changedName(asset)
      ) : (
        <Link href={createHref(`/inventory/${encodeURIComponent(assetId)}`)}>{changedName(asset)}</Link>
      ),
  },
  { title: "Type", cell: ({ type }) => type },
  { title: "Vault or directory", cell: ({ vaultName, source }) => vaultName ?? SOURCES[source] },
  { title: "Changed properties", cell: ({ members }) => changedProperties(members).map(propertyText).join(", ") },
];

/** The text in place of the vault's name for an asset that is in no vault. */
const SOURCES: Record<Change["source"], string> = {
  keyVault: "Key vault",
  entra: "Entra applications",
  b2c: "B2C tenant",
};

/** Names of properties that differ from the API's member in more than the case. The others are split into their words. */
const PROPERTIES: Record<string, string> = {
  version: "new version",
  expiresOn: "expiry date",
  createdOn: "creation date",
  updatedOn: "last modified",
  notBefore: "activation date",
  keyCurve: "curve",
  credential: "application or credential details",
  certificate: "certificate details",
  versionDates: "dates of versions",
  ari: "renewal window of the authority",
  renewal: "renewal plan",
  vaultId: "resource ID of the vault",
  subscriptionId: "subscription",
};

/** Properties that differ in each new version. */
const OF_NEW_VERSION = ["createdOn", "updatedOn", "versionDates"];

/** Returns the changed properties. Omits properties that every new version changes. */
const changedProperties = (members: readonly string[]): readonly string[] =>
  members.includes("version")
    ? ["version", ...members.filter((member) => member !== "version" && !OF_NEW_VERSION.includes(member))]
    : members;

const propertyText = (member: string): string =>
  PROPERTIES[member] ?? member.replaceAll(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`);

/** The Changes page: assets that scans and discoveries found to be new, changed or deleted, newest first. */
export default function Changes() {
  const [params] = useSearchParams();
  const query = { limit: 100, ...givenFilters(params, FILTERS) };
  const list = api.useInfiniteQuery("get", "/api/assets/discovery/changes", { params: { query } }, BY_CURSOR);
  return (
    <View title="Changes">
      <Card title="Changes of assets">
        <Text>Assets that scans and discoveries found to be new, changed or deleted. Newest first.</Text>
        <Filters of={FILTERS} />
        <PagedTable
          of={list}
          columns={COLUMNS}
          keyOf={({ at, change, assetId }) => `${at} ${change} ${assetId}`}
          label="Changes"
          empty={
            <>
              No changes match the filters. Clear the filters, or <Link href={createHref("/")}>start a scan</Link>.
            </>
          }
        />
      </Card>
    </View>
  );
}
