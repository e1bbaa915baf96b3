import dagre from "@dagrejs/dagre";
import { Button, makeStyles, Text, tokens } from "@fluentui/react-components";
import {
  type Edge,
  MarkerType,
  type Node,
  Position,
  ReactFlow,
  ReactFlowProvider,
  useReactFlow,
  useStore,
} from "@xyflow/react";
import { useEffect, useMemo, useState } from "react";
import type { Schemas } from "../../api/client.ts";
import { titleOfId } from "../../parts/asset-name.ts";
import { consumerTitle, isAsset, REFRESHES } from "../../parts/dependency-texts.ts";
import { useIsNarrow } from "../../parts/width.ts";
import { useIsDark } from "../../shell/theme.ts";
import { FOLDED_KIND, foldPossibleConsumers, MAX_UNFOLDED } from "./fold-consumers.ts";
import "@xyflow/react/dist/style.css";

type Radius = Schemas["BlastRadius"];

/** Sizes of a node and of the gap between consumers and asset, which the layout must know before the nodes are rendered. */
const WIDE_SIZES = { width: 240, height: 72, gap: 120 };
const NARROW_SIZES = { width: 116, height: 92, gap: 28 };
/** Smallest scale at which the names, 12 pixels high, can be read. A graph that needs a smaller scale is moved within its frame. */
const MIN_SCALE = 0.8;
/** Shows the whole graph if its names stay readable, and never larger than its natural size. */
const FIT = { minZoom: MIN_SCALE, maxZoom: 1, padding: "12px" } as const;
/** Color and dash pattern of a line, by the effect of a new version on the consumer. */
const LINES = {
  automatic: { color: tokens.colorStatusSuccessForeground1, dashes: "0" },
  action: { color: tokens.colorPaletteDarkOrangeForeground1, dashes: "12 4" },
  blind: { color: tokens.colorNeutralForeground3, dashes: "4 4" },
  willBreak: { color: tokens.colorStatusDangerForeground1, dashes: "2 6" },
} as const;
/** The effects of a new version, in the order of the legend. */
const EFFECTS = Object.keys(LINES) as (keyof typeof LINES)[];

const useStyles = makeStyles({
  picture: { width: "100%", maxHeight: "80vh" },
  buttons: { display: "flex", flexWrap: "wrap", gap: tokens.spacingHorizontalS },
  legend: { display: "flex", flexWrap: "wrap", columnGap: tokens.spacingHorizontalL },
  // A longer name would overlap the node below. The list of consumers shows it in full.
  label: {
    display: "-webkit-box",
    WebkitBoxOrient: "vertical",
    WebkitLineClamp: 3,
    overflow: "hidden",
    overflowWrap: "anywhere",
  },
  line: { verticalAlign: "middle", marginRight: tokens.spacingHorizontalXS },
});

/**
 * The graph of a blast radius: consumers on the left, the asset on the right, and a line from each consumer to the asset. Many
 * possible consumers are folded into one node. The frame is as high as the graph, up to most of the screen.
 */
export function Graph({ nodes, edges }: Pick<Radius, "nodes" | "edges">) {
  const styles = useStyles();
  const isDark = useIsDark();
  const sizes = useIsNarrow() ? NARROW_SIZES : WIDE_SIZES;
  const [isUnfolded, setUnfolded] = useState(false);
  const folded = useMemo(() => foldPossibleConsumers(nodes, edges), [nodes, edges]);
  const shown = isUnfolded ? { nodes, edges } : folded;
  const layout = useMemo(() => layOut(shown.nodes, shown.edges, sizes, styles.label), [shown, sizes, styles.label]);
  return (
    <ReactFlowProvider>
      <div className={styles.buttons}>
        {folded.count > MAX_UNFOLDED && (
          <Button size="small" aria-pressed={isUnfolded} onClick={() => setUnfolded(!isUnfolded)}>
            Draw all {folded.count} possible consumers
          </Button>
        )}
        <ZoomButtons />
      </div>
      <div
        className={styles.picture}
        style={{ height: layout.height + 2 * FRAME_PX }}
        role="img"
        aria-label={`Dependency graph with ${shown.nodes.length} nodes. The list of consumers contains the same data as text.`}
      >
        <ReactFlow
          nodes={layout.nodes}
          edges={layout.edges}
          colorMode={isDark ? "dark" : "light"}
          fitView
          fitViewOptions={FIT}
          // Smaller than `MIN_SCALE`, for "Show whole graph".
          minZoom={0.2}
          // The wheel and a swipe scroll the page. The buttons zoom.
          zoomOnScroll={false}
          preventScrolling={false}
          nodesDraggable={false}
          nodesConnectable={false}
          nodesFocusable={false}
          edgesFocusable={false}
          elementsSelectable={false}
          proOptions={{ hideAttribution: true }}
        >
          <FitToFrame nodeCount={layout.nodes.length} />
        </ReactFlow>
      </div>
      <div className={styles.legend}>
        <Text size={200}>
          {[
            ...(edges.some(({ strength }) => strength !== "entitled") ? ["Thick line: confirmed consumer."] : []),
            ...(edges.some(({ strength }) => strength === "entitled") ? ["Thin line: possible consumer."] : []),
          ].join(" ")}{" "}
          Arrows lead to the asset. Their color shows the effect of a new version.
        </Text>
        {EFFECTS.filter((refresh) => edges.some((edge) => edge.refresh === refresh)).map((refresh) => (
          <Text key={refresh} size={200}>
            <svg className={styles.line} width="36" height="6" aria-hidden="true">
              <line
                x1="0"
                y1="3"
                x2="36"
                y2="3"
                stroke={LINES[refresh].color}
                strokeWidth="3"
                strokeDasharray={LINES[refresh].dashes}
              />
            </svg>
            {REFRESHES[refresh]}
          </Text>
        ))}
      </div>
    </ReactFlowProvider>
  );
}

/** Space between the graph and its frame, in pixels. */
const FRAME_PX = 12;

/** Buttons that change the scale. They are outside of the frame, whose content is a picture for screen readers. */
function ZoomButtons() {
  const { zoomIn, zoomOut, fitView } = useReactFlow();
  return (
    <>
      <Button size="small" onClick={() => void zoomIn()}>
        Zoom in
      </Button>
      <Button size="small" onClick={() => void zoomOut()}>
        Zoom out
      </Button>
      <Button size="small" onClick={() => void fitView({ padding: FIT.padding })}>
        Show whole graph
      </Button>
    </>
  );
}

/** Fits the graph into its frame again when the size of the frame or the number of nodes changes. */
function FitToFrame({ nodeCount }: { nodeCount: number }) {
  const { fitView } = useReactFlow();
  const size = useStore((flow) => `${flow.width} ${flow.height}`);
  // biome-ignore lint/correctness/useExhaustiveDependencies: another size or number of nodes needs another fit.
  useEffect(() => {
    // The width is 0 until the frame is measured.
    if (!size.startsWith("0 ")) void fitView(FIT);
  }, [size, nodeCount, fitView]);
  return null;
}

/** Returns the text of a node: a consumer with its kind, the asset with its vault, or a number of folded consumers. */
function textOf(node: Radius["nodes"][number]): string {
  if (node.kind === FOLDED_KIND) return node.name;
  return isAsset(node) ? `${titleOfId(node.id, node.name)} (${node.kind})` : consumerTitle(node);
}

/** Returns the nodes with positions and the edges, as React Flow expects them, and the height of the graph in pixels. */
function layOut(
  nodes: Radius["nodes"],
  edges: Radius["edges"],
  { width, height, gap }: typeof WIDE_SIZES,
  labelClass: string,
): { nodes: Node[]; edges: Edge[]; height: number } {
  const graph = new dagre.graphlib.Graph().setDefaultEdgeLabel(() => ({}));
  graph.setGraph({ rankdir: "LR", nodesep: 12, ranksep: gap });
  for (const { id } of nodes) graph.setNode(id, { width, height });
  for (const { from, to } of edges) graph.setEdge(from, to);
  dagre.layout(graph);
  const consumerIds = new Set(edges.map(({ from }) => from));
  return {
    height: graph.graph().height ?? height,
    nodes: nodes.map((node) => {
      const { id } = node;
      // dagre returns the center of a node, React Flow expects its upper left corner.
      const { x, y } = graph.node(id);
      const text = textOf(node);
      return {
        id,
        position: { x: x - width / 2, y: y - height / 2 },
        // React Flow calls a node that only has outgoing lines an input, such as a consumer. The asset only has incoming ones.
        type: consumerIds.has(id) ? "input" : "output",
        data: { label: <span className={labelClass}>{text}</span> },
        sourcePosition: Position.Right,
        targetPosition: Position.Left,
        style: { width },
      };
    }),
    edges: edges.map(({ from, to, refresh, strength }) => ({
      id: `${from} ${to}`,
      source: from,
      target: to,
      markerEnd: { type: MarkerType.ArrowClosed, color: LINES[refresh].color },
      style: {
        stroke: LINES[refresh].color,
        strokeDasharray: LINES[refresh].dashes,
        strokeWidth: strength === "entitled" ? 1 : 3,
      },
    })),
  };
}
