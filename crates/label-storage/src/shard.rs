//! Which replica handles a Node.

use std::num::NonZeroU32;

use xxhash_rust::xxh3::xxh3_64;

/// The index, below `replicas`, of the replica that handles this key: `xxh3_64(key) mod N`. The key is the name of the Node, or its identity.
///
/// It must never change: during a roll-out replicas of different versions run side by side, and each Node must belong
/// to one of them. The test vectors below hold it in place.
pub fn shard(key: &str, replicas: NonZeroU32) -> u32 {
    let index = xxh3_64(key.as_bytes()) % u64::from(replicas.get());
    // Below a u32 by construction.
    u32::try_from(index).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(replicas: u32) -> NonZeroU32 {
        NonZeroU32::new(replicas).expect("not zero")
    }

    #[test]
    fn the_shard_of_a_name_never_changes() {
        for (node, hash, shards) in [
            ("my-new-node", 0x04ecf9684cd26a26, [0, 0, 0, 6, 38, 1371497358]),
            ("node-1", 0x0db09edfd9458385, [0, 1, 1, 5, 5, 3874890340]),
            ("ip-10-0-0-1.eu-west-1.compute.internal", 0xaab067f470ca7348, [0, 0, 0, 0, 8, 461036349]),
            ("gke-prod-default-pool-1a2b3c4d-x7k2", 0x331f7696e801a24d, [0, 1, 0, 5, 13, 455153892]),
            ("aks-nodepool1-31415926-vmss000003", 0x64a990d4bb1b960c, [0, 0, 2, 4, 12, 533014241]),
            ("a", 0xe6c632b61e964e1f, [0, 1, 1, 7, 31, 89948374]),
        ] {
            assert_eq!(xxh3_64(node.as_bytes()), hash, "{node}");
            let found = [1, 2, 3, 8, 64, u32::MAX].map(|n| shard(node, of(n)));
            assert_eq!(found, shards, "{node}");
        }
    }

    #[test]
    fn one_replica_handles_every_node() {
        assert_eq!(shard("anything", of(1)), 0);
    }

    /// A hundred thousand names of each of the shapes that clouds and people use.
    #[test]
    fn the_shards_are_even() {
        const NODES: u32 = 100_000;
        let shapes: [fn(u32) -> String; 6] = [
            |i| format!("node-{i}"),
            |i| format!("ip-10-{}-{}-{}.eu-west-1.compute.internal", i >> 16, (i >> 8) & 255, i & 255),
            |i| {
                format!(
                    "gke-prod-default-pool-{:08x}-{:04x}",
                    (i / 1000).wrapping_mul(2_654_435_761),
                    i % 65_521
                )
            },
            |i| format!("aks-nodepool1-{:08}-vmss{i:06}", 31_415_926 + i / 500),
            |i| format!("worker{i:05}.dc{}.example.com", i % 7),
            |i| format!("{}{i}", "n".repeat(240)),
        ];
        for (shape, name) in shapes.iter().enumerate() {
            let names: Vec<String> = (0..NODES).map(name).collect();
            for replicas in 1..=64u32 {
                let mut nodes = vec![0u32; replicas as usize];
                for name in &names {
                    nodes[shard(name, of(replicas)) as usize] += 1;
                }
                let share = f64::from(NODES) / f64::from(replicas);
                let fullest = f64::from(nodes.iter().copied().max().unwrap_or_default());
                assert!(
                    share >= 1000.0 && fullest <= share * 1.1,
                    "shape {shape}, N={replicas}: {fullest} of {share}"
                );
            }
        }
    }
}
