import { Text } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { LongField } from "../../parts/fields.tsx";
import { fieldText } from "../../parts/form-dialog.tsx";
import { Instant } from "../../parts/instant.tsx";
import { isolated } from "../../parts/isolated.ts";
import { Operate } from "../../parts/operate.tsx";
import { QueryResult } from "../../parts/query-result.tsx";

type Owner = Schemas["AlertOwner"];

/** Maximum page size of the API. */
const MAX_PAGE_SIZE = 1_000;
/** During an upgrade, hosts of the previous version still answer, without the name of the tag. */
const DEFAULT_OWNER_TAG = "owner";

/** The card of the Alerts page with the owners and their mail addresses, and the form that replaces the list. */
export function Owners() {
  // The API replaces the whole table, so the form loads all entries: at most two pages.
  const owners = api.useQuery("get", "/alerts/owners", { params: { query: { limit: MAX_PAGE_SIZE } } });
  const isLong = (owners.data?.total ?? 0) > MAX_PAGE_SIZE;
  const secondPage = api.useQuery(
    "get",
    "/alerts/owners",
    { params: { query: { limit: MAX_PAGE_SIZE, offset: MAX_PAGE_SIZE } } },
    { enabled: isLong },
  );
  const itemsOfSecondPage = secondPage.data?.items ?? [];
  return (
    <QueryResult of={owners}>
      {({ items, updatedAt, updatedBy, etag, ownerTag = DEFAULT_OWNER_TAG }) => (
        <>
          <Text>
            Alerts by email about an asset go to its owner, if the value of the asset's tag {isolated(ownerTag)} is
            listed here. All other alerts go to the recipients of the rule.
            {updatedAt && (
              <>
                {" "}
                Last modified by {updatedBy} <Instant at={updatedAt} relative />.
              </>
            )}
          </Text>
          <div>
            {/* A form with only the first page would delete the other owners. */}
            {(!isLong || secondPage.isSuccess) && (
              <Operate
                operation="replaceAlertOwners"
                title="Edit owners"
                action="Save owners"
                submit={(form, replace) =>
                  replace({
                    params: { header: { "If-Match": etag } },
                    body: { owners: ownersOf(fieldText(form, "owners")) },
                  })
                }
              >
                <LongField
                  name="owners"
                  label="Owners"
                  hint={`One per line: the value of the tag ${isolated(ownerTag)}, a colon, and the email address. Example: payments: payments@contoso.com. Alerts for an owner that you remove here go to the recipients of the rule, unless the tag is an address in a domain of ALERT_OWNER_DOMAINS.`}
                  rows={10}
                  defaultValue={[...items, ...itemsOfSecondPage]
                    .map(({ owner, address }) => `${owner}: ${address}`)
                    .join("\n")}
                />
              </Operate>
            )}
          </div>
          {items.length === 0 ? (
            <Text>No owners yet, so the recipients of the rules get all alerts. Select Edit owners to add owners.</Text>
          ) : (
            <ul>
              {[...items, ...itemsOfSecondPage].map(({ owner, address }) => (
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

/**
 * Returns the owners in the text. The last colon of a line separates the address, because an owner's name can contain colons.
 */
const ownersOf = (text: string): Owner[] =>
  text
    .split("\n")
    .filter((line) => line.trim() !== "")
    .map((line) => {
      const colon = line.lastIndexOf(":");
      return { owner: line.slice(0, Math.max(0, colon)).trim(), address: line.slice(colon + 1).trim() };
    });
