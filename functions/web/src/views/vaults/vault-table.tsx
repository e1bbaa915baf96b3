import { Link } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { Instant } from "../../parts/instant.tsx";
import { BY_CURSOR, type Column, PagedTable } from "../../parts/paged-table.tsx";
import { useSearchParams } from "../../parts/router.tsx";
import { Only } from "./only.tsx";

type Vault = Schemas["Vault"];

const COLUMNS: Column<Vault>[] = [
  {
    title: "Vault",
    whole: true,
    cell: ({ name }) => <Link href={createHref("/inventory", { vault: name })}>{name}</Link>,
  },
  { title: "Subscription", cell: ({ subscriptionId, subscriptionName }) => subscriptionName ?? subscriptionId },
  { title: "Resource group", cell: ({ resourceGroup }) => resourceGroup },
  { title: "Secrets", cell: ({ assets }) => assets.secret.toLocaleString() },
  { title: "Keys", cell: ({ assets }) => assets.key.toLocaleString() },
  { title: "Certificates", cell: ({ assets }) => assets.certificate.toLocaleString() },
  { title: "Expired", cell: ({ health }) => health.expired.toLocaleString() },
  { title: "Critical", cell: ({ health }) => health.critical.toLocaleString() },
  { title: "What can't be read", wide: true, cell: failuresOf },
];

/** Every vault, and which roles are missing where it can't be read. */
export function VaultTable() {
  const [params] = useSearchParams();
  const failing = params.get("failing") === "true";
  const list = api.useInfiniteQuery(
    "get",
    "/api/assets/discovery/vaults",
    { params: { query: { limit: 200, ...(failing && { failing: "true" }) } } },
    BY_CURSOR,
  );
  return (
    <>
      <Only name="failing" label="Only vaults that could not be read" />
      <PagedTable
        of={list}
        columns={COLUMNS}
        keyOf={({ id }) => id}
        label="Vaults"
        none={failing ? "No known vault failed at its last scan." : "No vault was found yet."}
      />
    </>
  );
}

function failuresOf({ failures, retryAt }: Vault) {
  if (failures.length === 0 && retryAt === null) return null;
  return (
    <>
      {failures.map(({ list, message, remedy, at }) => (
        <div key={list}>
          {list}: {message} {remedy} (<Instant at={at} relative />)
        </div>
      ))}
      {retryAt !== null && (
        <div>
          Tried again <Instant at={retryAt} relative />
        </div>
      )}
    </>
  );
}
