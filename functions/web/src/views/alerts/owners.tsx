import { Text } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { LongField } from "../../parts/fields.tsx";
import { typed } from "../../parts/form-dialog.tsx";
import { Instant } from "../../parts/instant.tsx";
import { Operate } from "../../parts/operate.tsx";
import { QueryResult } from "../../parts/query-result.tsx";

type Owner = Schemas["AlertOwner"];

/** Maximum page size of the API. */
const PAGE = 1_000;

/** The table of owners and their mail addresses. */
export function Owners() {
  // The API replaces the whole table, so the form loads all entries: at most two pages.
  const owners = api.useQuery("get", "/alerts/owners", { params: { query: { limit: PAGE } } });
  const isLong = (owners.data?.total ?? 0) > PAGE;
  const others = api.useQuery(
    "get",
    "/alerts/owners",
    { params: { query: { limit: PAGE, offset: PAGE } } },
    { enabled: isLong },
  );
  const rest = others.data?.items ?? [];
  return (
    <QueryResult of={owners}>
      {({ items, updatedAt, updatedBy, etag }) => (
        <>
          <Text>
            If an asset's owner tag is listed here, the owner gets the mail. The rule's recipients get everything else.
            {updatedAt && (
              <>
                {" "}
                Last modified by {updatedBy} <Instant at={updatedAt} relative />.
              </>
            )}
          </Text>
          <div>
            {(!isLong || others.isSuccess) && (
              <Operate
                operation="replaceAlertOwners"
                title="Edit owners"
                action="Save"
                submit={(form, replace) =>
                  replace({
                    params: { header: { "If-Match": etag } },
                    body: { owners: ownersOf(typed(form, "owners")) },
                  })
                }
              >
                <LongField
                  name="owners"
                  label="Owners"
                  hint="One per line, as owner: address. Example: payments: payments@example.com"
                  rows={10}
                  defaultValue={[...items, ...rest].map(({ owner, address }) => `${owner}: ${address}`).join("\n")}
                />
              </Operate>
            )}
          </div>
          {items.length === 0 ? (
            <Text>No owners yet. Add owners to send them the alerts for their assets.</Text>
          ) : (
            <ul>
              {[...items, ...rest].map(({ owner, address }) => (
                <li key={owner}>
                  {owner}: {address}
                </li>
              ))}
            </ul>
          )}
        </>
      )}
    </QueryResult>
  );
}

/** The last colon separates the address, because an owner's name can contain colons. */
const ownersOf = (text: string): Owner[] =>
  text
    .split("\n")
    .filter((line) => line.trim() !== "")
    .map((line) => {
      const at = line.lastIndexOf(":");
      return { owner: line.slice(0, Math.max(0, at)).trim(), address: line.slice(at + 1).trim() };
    });
