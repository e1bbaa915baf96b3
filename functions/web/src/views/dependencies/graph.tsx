import dagre from "@dagrejs/dagre";
import { makeStyles, Text, tokens } from "@fluentui/react-components";
import { type Edge, type Node, Position, ReactFlow, useReactFlow, useStore } from "@xyflow/react";
import { useEffect, useMemo } from "react";
import type { Schemas } from "../../api/client.ts";
import { consumerTitle, REFRESHES } from "../../parts/dependency-texts.ts";
import { useIsDark } from "../../shell/theme.ts";
import "@xyflow/react/dist/style.css";

type Radius = Schemas["BlastRadius"];

/** Size of a node, which the layout must know before the nodes are rendered. */
const WIDTH_PX = 240;
const HEIGHT_PX = 72;
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
  picture: { height: "420px", width: "100%" },
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

/** The graph of a blast radius: consumers on the left, the asset on the right, and a line from each consumer to the asset. */
export function Graph({ nodes, edges }: Pick<Radius, "nodes" | "edges">) {
  const styles = useStyles();
  const isDark = useIsDark();
  const layout = useMemo(() => layOut(nodes, edges, styles.label), [nodes, edges, styles.label]);
  return (
    <>
      <div
        className={styles.picture}
        role="img"
        aria-label={`Dependency graph with ${nodes.length} nodes. The list of consumers contains the same data as text.`}
      >
        <ReactFlow
          nodes={layout.nodes}
          edges={layout.edges}
          colorMode={isDark ? "dark" : "light"}
          fitView
          // A large graph on a phone needs a scale below the default minimum of 0.5.
          minZoom={0.2}
          nodesDraggable={false}
          nodesConnectable={false}
          nodesFocusable={false}
          edgesFocusable={false}
          elementsSelectable={false}
          proOptions={{ hideAttribution: true }}
        >
          <FitToWidth />
        </ReactFlow>
      </div>
      <div className={styles.legend}>
        <Text size={200}>
          Thick line: confirmed consumer. Thin line: possible consumer. The colors show the effect of a new version.
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
    </>
  );
}

/** Fits the graph into its frame again when the width of the screen changes. */
function FitToWidth() {
  const { fitView } = useReactFlow();
  const width = useStore((flow) => flow.width);
  useEffect(() => {
    if (width > 0) void fitView();
  }, [width, fitView]);
  return null;
}

/** Returns the nodes with positions and the edges, as React Flow expects them. */
function layOut(nodes: Radius["nodes"], edges: Radius["edges"], labelClass: string): { nodes: Node[]; edges: Edge[] } {
  const graph = new dagre.graphlib.Graph().setDefaultEdgeLabel(() => ({}));
  graph.setGraph({ rankdir: "LR", nodesep: 12, ranksep: 120 });
  for (const { id } of nodes) graph.setNode(id, { width: WIDTH_PX, height: HEIGHT_PX });
  for (const { from, to } of edges) graph.setEdge(from, to);
  dagre.layout(graph);
  const consumerIds = new Set(edges.map(({ from }) => from));
  return {
    nodes: nodes.map((node) => {
      const { id } = node;
      // dagre returns the center of a node, React Flow expects its upper left corner.
      const { x, y } = graph.node(id);
      const text = consumerTitle(node);
      return {
        id,
        position: { x: x - WIDTH_PX / 2, y: y - HEIGHT_PX / 2 },
        // React Flow calls a node that only has outgoing lines an input, such as a consumer. The asset only has incoming ones.
        type: consumerIds.has(id) ? "input" : "output",
        data: { label: <span className={labelClass}>{text}</span> },
        sourcePosition: Position.Right,
        targetPosition: Position.Left,
        style: { width: WIDTH_PX },
      };
    }),
    edges: edges.map(({ from, to, refresh, strength }) => ({
      id: `${from} ${to}`,
      source: from,
      target: to,
      style: {
        stroke: LINES[refresh].color,
        strokeDasharray: LINES[refresh].dashes,
        strokeWidth: strength === "entitled" ? 1 : 3,
      },
    })),
  };
}
