import { setImmediate as turn } from "node:timers/promises";

/** A message's text, as Azurite keeps it apart from the message. */
interface Extent {
  readonly id: string;
}

/** What is used of Azurite's `LokiExtentMetadataStore`. */
interface Store {
  readonly db: { getCollection(name: string): Extents };
  readonly EXTENTS_COLLECTION: string;
  deleteExtent(id: string): Promise<void>;
}

/** What is used of a collection of lokijs. */
interface Extents {
  findOne(keys: Extent): Extent | null;
  remove(extent: Extent): void;
}

/**
 * Lets Azurite remove the texts of messages that are gone while it goes on answering. It does so once a minute, and its own
 * store makes its index anew for each text without ever giving way: after 2,000 messages nothing is answered for seconds,
 * after 10,000 for minutes.
 */
export function removeMessagesBesides({ prototype: store }: { prototype: Store }): void {
  store.deleteExtent = async function (id) {
    const extents = this.db.getCollection(this.EXTENTS_COLLECTION);
    const extent = extents.findOne({ id });
    if (extent) extents.remove(extent);
    await turn();
  };
}
